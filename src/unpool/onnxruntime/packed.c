#include "plan.h"
#include "packed.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

struct Packed {
    int64_t uses;
    Plan *packing;
    void *blocks[MAX_OPERANDS], *constants[MAX_OPERANDS];
};

Packed *packed_new(Plan *packing, void *const *inputs, const int64_t *sizes, ParallelFor parallel_for, void *context,
                   char *message, int64_t room) {
    Packed *packed = calloc(1, sizeof *packed);
    int is_done = packed != NULL;
    if (packed == NULL) return plan_free(packing), NULL;
    packed->uses = 1, packed->packing = packing;
    for (int64_t i = 0; is_done && i < plan_output_count(packing); i++) { /* of zeros */
        char *block = packed->blocks[i] = calloc(plan_output(packing, i).size + ALIGNMENT, 1);
        is_done = block != NULL;
        packed->constants[i] = block + -(uintptr_t)block % ALIGNMENT;
    }
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
