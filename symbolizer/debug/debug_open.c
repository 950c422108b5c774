/* symbolizer/debug/debug_open.c: opens and closes the debug information of one program. */
#include "symbolizer/debug/debug.h"

#include "unwinder/unwinder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* The work that is done for any program, however small its debug information is. */
#define LIMIT_LEAST ((uint64_t)256 << 20)

/* Open the file that .gnu_debugaltlink names, if its build-id is right. Failure is not an error. */
static void open_alt(struct sym_debug *d, const struct uw_elf *image)
{
	struct uw_build_id want, got;
	struct uw_elf alt;
	char *path;
	int fd;

	if (!d->files.alt || sym_elf_alt_link(image, &path, &want))
		return;
	if (!d->files.alt(d->files.ctx, path, &want, &fd)) {
		if (!sym_elf_open_fd(&alt, fd, 0)) {
			d->has_alt = !sym_elf_build_id(&alt, &got) &&
				     uw_build_id_equal(&got, &want) &&
				     !dw_file_open(&alt, false, &d->budget, &d->alt);
			uw_elf_fini(&alt);
		}
		if (d->has_alt)
			d->alt.fd = fd;
		else
			(void)close(fd);
	}
	free(path);
	if (d->has_alt) {
		d->main.alt = &d->alt;
		d->budget.limit +=
			SYM_WORK_TIMES * (d->alt.info.source.size + d->alt.line.source.size);
	}
}

/* Open the debug information of an image. Takes ownership of the image and its descriptor. */
static int open_debug(struct uw_elf *image, const struct sym_debug_files *files,
		      struct sym_lines *lines, struct sym_debug **out)
{
	struct sym_debug *d = calloc(1, sizeof(*d));
	int err = d ? 0 : -ENOMEM;

	if (!err) {
		d->lines = lines;
		d->skipping = DW_SKIP_N - 1;
		if (files)
			d->files = *files;
		d->main.fd = d->alt.fd = d->package.fd = -1;
		err = dw_file_open(image, false, &d->budget, &d->main);
	}
	if (!err) {
		d->main.fd = image->source.fd;
		d->budget.limit = LIMIT_LEAST + SYM_WORK_TIMES * (d->main.info.source.size +
								  d->main.line.source.size);
		open_alt(d, image);
		err = sym_spans_find(d, image);
	} else if (image->source.fd >= 0) {
		(void)close(image->source.fd);
	}
	uw_elf_fini(image);
	if (err) {
		sym_debug_free(d);
		return err;
	}
	*out = d;
	return 0;
}

int sym_debug_open(int fd, uint64_t elf_off, const struct sym_debug_files *files,
		   struct sym_lines *lines, struct sym_debug **out)
{
	struct uw_elf image;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int err = own < 0 ? -errno : sym_elf_open_fd(&image, own, elf_off);

	if (!err)
		return open_debug(&image, files, lines, out);
	if (own >= 0)
		(void)close(own);
	return err;
}

int sym_debug_open_image(const void *bytes, size_t size, const struct sym_debug_files *files,
			 struct sym_lines *lines, struct sym_debug **out)
{
	struct uw_elf image;
	int err = sym_elf_open_bytes(&image, bytes, size);

	return err ? err : open_debug(&image, files, lines, out);
}

int sym_debug_new_reader(const struct sym_debug *of, struct sym_lines *lines,
			 struct sym_debug **out)
{
	struct sym_debug *d = calloc(1, sizeof(*d));
	int err = d ? 0 : -ENOMEM;

	if (err)
		return err;
	d->lines = lines;
	d->files = of->files;
	d->budget = (struct dw_budget){ .limit = of->budget.limit };
	d->skipping = of->skipping;
	d->package.fd = d->main.fd = d->alt.fd = -1;
	err = dw_file_new_reader(&of->main, &d->budget, &d->main);
	if (!err && of->has_alt) {
		err = dw_file_new_reader(&of->alt, &d->budget, &d->alt);
		d->has_alt = !err;
		d->main.alt = err ? NULL : &d->alt;
	}
	if (err) {
		sym_debug_free(d);
		return err;
	}
	d->spans = of->spans;
	d->n_spans = of->n_spans;
	d->shares_spans = true;
	*out = d;
	return 0;
}

void sym_debug_free(struct sym_debug *d)
{
	if (!d)
		return;
	sym_split_close(d);
	free(d->packaged);
	dw_file_close(&d->package);
	dw_file_close(&d->main);
	dw_file_close(&d->alt);
	if (!d->shares_spans)
		free(d->spans);
	free(d->origins);
	uw_hash_fini(&d->by_origin);
	free(d);
}
