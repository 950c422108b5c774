# Computes in places that it knows, for ARGV[0] seconds. Before it begins in a place, it writes the stack of the place,
# as the interpreter itself gives it: a line with function and line of each call, the innermost first.
SEEN = {}
$stdout.sync = true

def known
  text = caller_locations(1).each_with_index.map { |l, i|
    c = l.absolute_path.nil? && l.path.start_with?("<internal") ? "" : (i == 0 ? "*" : l.lineno)
    "#{l.label.tr(' ', '_')}@#{c}"
  }.join(" ")
  return if SEEN[text]
  SEEN[text] = true
  puts text
end

class Shop
  def self.spin(n)
    known
    i = 0
    i += 1 while i < n
  end
  def sorted
    (1..30).to_a.sort { |a, b| Shop.spin(5000); b <=> a }
  end
  def hash
    h = Hash.new { |_, _| Shop.spin(50000) }
    h[1]
  end
  def method_missing(*)
    Shop.spin(50000)
  end
  define_method(:defined) do
    lambda { [1].each { Shop.spin(50000) } }.call
  end
end

def deep(n)
  return Shop.spin(50000) if n == 0
  deep(
    n - 1)
end

shop = Shop.new
evaluated = eval("proc { deep(3) }")
finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_f
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
  shop.sorted
  shop.hash
  shop.gone
  shop.defined
  deep(40)
  evaluated.call
  2.times { Fiber.new { deep(2) }.resume }
  Thread.new { deep(1) }.join
end
