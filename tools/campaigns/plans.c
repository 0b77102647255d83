/* Reads damaged plans, and runs those that pass all checks with a kernel that touches no memory.
 *
 *     fuzz_plans FILE COUNT SEED
 *
 * FILE has plans, each after its size as an int64. Prints how many damaged ones were refused, and how many ran. */
#include "../../src/unpool/onnxruntime/plan.c"

enum { LARGE = 1 << 16 }; /* bytes of an array */

static uint64_t state;

static uint64_t next(void) { /* xorshift64, G. Marsaglia, 2003 */
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static int64_t kernel(const int64_t *words, int64_t first, int64_t stop) {
    (void)words;
    static const int64_t results[] = {0, 1, 2, -1, -2, INT64_MIN, 1 << 20};
    return stop < first ? abort(), 0 : results[next() % 7];
}

static int in_turn(void *context, void (*task)(void *, size_t), size_t parts, void *data) {
    (void)context;
    for (size_t part = 0; part < parts; part++) task(data, part);
    return 1;
}

static void damage(char *blob, int64_t *size) {
    static const int64_t words[] = {0, 1, -1, 8, 64, 1 << 16, INT64_MAX, INT64_MIN, 1LL << 45, 65537};
    int64_t changes = 1 + next() % 4;
    for (int64_t i = 0; i < changes; i++) {
        int64_t at = next() % (*size / 8) * 8, value = words[next() % 10];
        switch (next() % 4) {
        case 0: blob[next() % *size] ^= 1 << next() % 8; break;
        case 1: memcpy(blob + at, &value, 8); break;
        case 2: at %= sizeof(Head) + 512, value = next() % (*size + 64), memcpy(blob + at, &value, 8); break;
        default:
            if (next() % 8 == 0) *size = next() % *size + 1;
        }
        if (*size < 8) return;
    }
}

int main(int count, char **arguments) {
    char *content = NULL, message[512];
    int64_t length, plans[4096], found = 0, refused = 0, done = 0;
    FILE *file = count == 4 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL) return fprintf(stderr, "fuzz_plans FILE COUNT SEED\n"), 2;
    fseek(file, 0, SEEK_END), length = ftell(file), rewind(file);
    content = malloc(length);
    if (fread(content, 1, length, file) != (size_t)length) return 1;
    for (int64_t at = 0, size; at < length && found < 4096; at += 8 + size) memcpy(&size, content + at, 8), plans[found++] = at;
    state = 88172645463325252ULL ^ (uint64_t)atoll(arguments[3]);
    for (int64_t i = 0; i < atoll(arguments[2]); i++) {
        int64_t size, at = plans[next() % found], sizes[MAX_OPERANDS];
        void *arrays[MAX_OPERANDS], *constants[MAX_OPERANDS];
        char *blob, *large = calloc(LARGE, 1), word[8];
        Plan *plan;
        memcpy(&size, content + at, 8);
        blob = malloc(size), memcpy(blob, content + at + 8, size);
        damage(blob, &size);
        blob = realloc(blob, size); /* no byte beyond it may be read */
        plan = plan_read(blob, plan_size(blob, size) ? plan_size(blob, size) : size, message, sizeof message);
        refused += plan == NULL;
        if (plan != NULL) {
            int64_t kernels = plan_kernel_count(plan), *addresses = malloc((kernels + 1) * sizeof *addresses);
            for (int64_t k = 0; k < kernels; k++) addresses[k] = (intptr_t)kernel, strlen(plan_kernel(plan, k));
            for (int k = 0; k < MAX_OPERANDS; k++) arrays[k] = constants[k] = word, sizes[k] = 8;
            plan_link(plan, addresses), plan_bind(plan, constants);
            for (int64_t k = 0; k < plan_output_count(plan); k++) {
                PlanOutput output = plan_output(plan, k);
                for (int64_t axis = 0; axis < output.rank; axis++) done += output.dims[axis] < 0;
            }
            plan_run(plan, arrays, sizes, arrays, in_turn, NULL, message, sizeof message);
            for (int k = 0; k < MAX_OPERANDS; k++) arrays[k] = large, sizes[k] = LARGE;
            plan_run(plan, arrays, sizes, arrays, in_turn, NULL, message, sizeof message);
            done++;
            free(addresses);
            plan_free(plan);
        }
        free(blob);
        free(large);
    }
    free(content);
    printf("%lld refused, %lld ran\n", (long long)refused, (long long)done);
    return 0;
}
