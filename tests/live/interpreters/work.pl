# Computes in places that it knows, for ARGV[0] seconds. Before it begins in a place, it writes the stack of the place,
# as the interpreter itself gives it: a line with function and line of each call, the innermost first.
use strict;
use warnings;
use List::Util 'first';
use Time::HiRes 'time';
use threads;

$| = 1;
my %seen;

sub known {
	my @names;
	my $line = '*';
	for (my $i = 1; my @call = caller($i); $i++) {
		push @names, "$call[3]\@$line";
		$line = $call[2];
	}
	my $text = join ' ', @names, "(main)\@$line";
	print "$text\n" unless $seen{$text}++;
}

package Shop;
use overload '+' => sub { Shop::spin(1500); 1 };

sub spin {
	my $n = shift;
	main::known();
	for my $i (1 .. $n) {
		my $s = sqrt($i);
	}
}

sub compare {
	spin(500);
	return $_[0] <=> $_[1];
}

sub by {
	eval { spin(500) };
	return $a <=> $b;
}

sub sorted {
	my @list = sort { compare($a, $b) } reverse 1 .. 30;
	@list = sort by reverse 1 .. 30;
}

sub DESTROY {
	Shop::spin(3000);
}

package main;

sub deep {
	my $n = shift;
	return $n ? deep($n - 1) : Shop::spin(5000);
}

sub work {
	my $shop = bless {}, 'Shop';
	$shop->sorted;
	my $sum = $shop + 1;
	first { Shop::spin(3000) } 1;
	deep(40);
	eval { deep(2) };
	eval 'deep(3) for 1 .. 5; 1' or die;
	sub { deep(1) }->();
}

my $end = time + $ARGV[0];
work() while time < $end;
threads->create(sub { deep(5) for 1 .. 100 })->join;
