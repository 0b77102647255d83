#include "plan.h"
#include "packed.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

struct Packed {
    int64_t uses;
    Plan *packing;
    void *blocks[MAX_OPERANDS], *constants[MAX_OPERANDS];
};

static void say_out_of_memory(int64_t size, char *message, int64_t room) {
    const char *format = "unpool: out of memory: the packed weights take %lld MiB. Free memory, or split the model.";
    snprintf(message, room, format, (long long)((size + (1 << 20) - 1) >> 20));
}

Packed *packed_new(Plan *packing, void *const *inputs, const int64_t *sizes, ParallelFor parallel_for, void *context,
                   char *message, int64_t room) {
    Packed *packed = calloc(1, sizeof *packed);
    int64_t size = 0;
    int is_done = packed != NULL;
    for (int64_t i = 0; i < plan_output_count(packing); i++) size += plan_output(packing, i).size;
    if (!is_done) return say_out_of_memory(size, message, room), plan_free(packing), NULL;
    packed->uses = 1, packed->packing = packing;
    for (int64_t i = 0; is_done && i < plan_output_count(packing); i++) { /* of zeros */
        char *block = packed->blocks[i] = calloc(plan_output(packing, i).size + ALIGNMENT, 1);
        is_done = block != NULL;
        packed->constants[i] = block + -(uintptr_t)block % ALIGNMENT;
    }
    if (!is_done) say_out_of_memory(size, message, room);
    if (is_done && plan_run(packing, inputs, sizes, packed->constants, parallel_for, context, message, room) == PLAN_DONE)
        return packed;
    return packed_drop(packed), NULL;
}

int packed_is_of(const Packed *packed, const Plan *packing) { return plan_is_equal(packed->packing, packing); }

void packed_use(Packed *packed) { __atomic_add_fetch(&packed->uses, 1, __ATOMIC_RELAXED); }

void packed_drop(Packed *packed) {
    if (packed == NULL || __atomic_sub_fetch(&packed->uses, 1, __ATOMIC_ACQ_REL) != 0) return;
    for (int64_t i = 0; i < MAX_OPERANDS; i++) free(packed->blocks[i]);
    plan_free(packed->packing);
    free(packed);
}

void *const *packed_constants(const Packed *packed) { return packed->constants; }
