/* Constants of plans: packed weights, which plans of a node share. */

typedef struct Packed Packed;

/* Constants that a plan computes from inputs, as `plan_run` takes them; NULL if this fails, with a sentence unless the plan
 * is not met. The plan is freed with them, or at once. */
Packed *packed_new(Plan *packing, void *const *inputs, const int64_t *sizes, ParallelFor parallel_for, void *context,
                   char *message, int64_t room);
int packed_is_of(const Packed *packed, const Plan *packing); /* 1 if a plan would compute these constants again */
void packed_use(Packed *packed);
void packed_drop(Packed *packed); /* one use less, after `packed_new` and each `packed_use`; of NULL, too */
void *const *packed_constants(const Packed *packed);
