#include "unwinder/arch.h"

static const struct uw_arch *const known[] = { &uw_arch_x86_64, &uw_arch_aarch64 };

const struct uw_arch *uw_arch_of(uint16_t machine)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i]->machine == machine)
			return known[i];
	return NULL;
}
