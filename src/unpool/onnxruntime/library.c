/* MaxPool, MaxUnpool, ConvTranspose and operators of unpool's own as custom operators of onnxruntime.
 *
 * onnxruntime loads this library for a session (`SessionOptions.register_custom_ops_library`), calls
 * `RegisterCustomOps`, and gives the nodes of three domains to the operators here: "" and com.ms.internal.nhwc, where
 * they take the place of onnxruntime's own, and "unpool". `operators.c` lists them.
 *
 *     create     the attributes of a node are read once, and handed to a planner
 *     infer      output types and shapes, as far as input shapes determine them
 *     compute    the steps of a plan run in the threads of the session (ParallelFor)
 *
 * A planner among the kernels is asked first (`native.c`). The other one is in Python (`planner.h`). It knows everything,
 * and says what is wrong with a node. Here are the operators, as onnxruntime knows them, and their registration;
 * `node_create.c` and `node_run.c` are the kernels of nodes. */
#include "export.h"
#include "node_kernel.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#define UNPOOL_API EXPORT
#include "unpool.h"

const void *const *api;
int api_number;

/* Without a setting ConvTranspose begins with opset 11, where its meaning changed for the last time: onnxruntime runs older
 * ones. */
enum { NEW_CONV_TRANSPOSE = 11 };

/* onnxruntime computes a MaxPool of version 1 or 8 and later, without Indices, by a kernel of its own in the blocked
 * layout between Convs. It is fast, but loses NaN, pads in its own way, and divides by zero where no window fits. */
enum { UNBLOCKED_MAX_POOL = 2 };

typedef struct Op { /* OrtCustomOp of API 17, and what is ours */
    uint32_t version;
    void *(*create_v1)(void);
    const char *(*name_of)(const struct Op *);
    const char *(*provider)(const struct Op *);
    int (*input_type)(const struct Op *, size_t);
    size_t (*input_count)(const struct Op *);
    int (*output_type)(const struct Op *, size_t);
    size_t (*output_count)(const struct Op *);
    void (*compute_v1)(void);
    void (*destroy)(void *);
    int (*input_characteristic)(const struct Op *, size_t);
    int (*output_characteristic)(const struct Op *, size_t);
    int (*memory_type)(const struct Op *, size_t);
    int (*variadic[4])(const struct Op *); /* least counts, and whether types are one, of inputs and outputs */
    OrtStatus *(*create)(const struct Op *, const void *, const void *, void **);
    OrtStatus *(*compute)(void *, void *);
    OrtStatus *(*infer)(const struct Op *, void *);
    int (*start_version)(const struct Op *);
    int (*end_version)(const struct Op *);
    const Operator *operator;
    int32_t type, domain;
    const Settings *settings;
} Op;

static OrtStatus *create(const Op *op, const void *own_api, const void *info, void **result) {
    return (void)own_api, node_create(op->operator, op->domain, op->settings, info, result);
}
static void *create_v1(void) { return NULL; }
static void compute_v1(void) {}
static OrtStatus *infer(const Op *op, void *context) { /* whose status onnxruntime ignores */
    infer_outputs(op->operator, op->domain, op->settings->values[COMPAT], context);
    return NULL;
}
static const char *name_of(const Op *op) { return op->operator->name; }
static const char *provider(const Op *op) { return (void)op, "CPUExecutionProvider"; }
static size_t input_count(const Op *op) { return strlen(op->operator->inputs); }
static size_t output_count(const Op *op) { return strlen(op->operator->outputs); }
static int input_type(const Op *op, size_t input) { return type_of(op->operator->inputs[input], op->type); }
static int output_type(const Op *op, size_t output) { return type_of(op->operator->outputs[output], op->type); }
static int input_characteristic(const Op *op, size_t input) { return characteristic_of(op->operator->inputs[input]); }
static int output_characteristic(const Op *op, size_t output) { return characteristic_of(op->operator->outputs[output]); }
static int memory_type(const Op *op, size_t input) { return (void)op, (void)input, 0; }
static int least_count(const Op *op) { return op->operator->sizes != STATED; }
static int zero(const Op *op) { return (void)op, 0; }
static int last_version(const Op *op) { return (void)op, INT32_MAX; }

static int start_version(const Op *op) {
    if (op->domain == OWN) return 1;
    if (op->operator->sizes == POOLED && op->settings->values[EXACT][0] == '1') return UNBLOCKED_MAX_POOL;
    return op->operator->sizes == GROWN && op->settings->values[OPSET][0] == 0 ? NEW_CONV_TRANSPOSE : 1;
}

/* Operators and domains stay until the process ends, for the sessions that use them. */

typedef struct Registered {
    struct Registered *next;
    Settings settings;
    void *domains[DOMAINS];
    Op ops[DOMAINS][OPERATORS * TYPES];
} Registered;

static Registered *all_registered;

static OrtStatus *make(const Settings *settings, Registered **result) {
    const Op common = {.version = MIN_API, .create_v1 = create_v1, .name_of = name_of, .provider = provider,
        .input_type = input_type, .input_count = input_count, .output_type = output_type, .output_count = output_count,
        .compute_v1 = compute_v1, .destroy = node_destroy, .input_characteristic = input_characteristic,
        .output_characteristic = output_characteristic, .memory_type = memory_type, .variadic = {least_count, zero, least_count, zero},
        .create = create, .compute = node_compute, .infer = infer, .start_version = start_version, .end_version = last_version};
    Registered *made;
    for (made = all_registered; made != NULL; made = made->next)
        if (memcmp(&made->settings, settings, sizeof *settings) == 0) return *result = made, NULL;
    if ((made = calloc(1, sizeof *made)) == NULL) return fail(FAIL, "unpool: out of memory.");
    made->settings = *settings, made->next = all_registered;
    for (int d = 0; d < DOMAINS; d++) {
        OrtStatus *status = CreateCustomOpDomain(domain_names[d], &made->domains[d]);
        for (int i = 0; status == NULL && i < OPERATORS * TYPES; i++) {
            const Operator *operator = &operators[i % OPERATORS];
            Op *op = &made->ops[d][i];
            if (!(operator->domains >> d & 1) || i / OPERATORS >= operator->types) continue;
            *op = common;
            op->operator= operator, op->type = operator_types[i / OPERATORS], op->domain = d, op->settings = &made->settings;
            status = CustomOpDomain_Add(made->domains[d], op);
        }
        if (status != NULL) return status;
    }
    *result = all_registered = made;
    return NULL;
}

static int is_own(const Settings *settings) { return strcmp(settings->values[DOMAIN_NAMES], "unpool") == 0; }

struct OrtApiBase {
    const void *const *(*get)(uint32_t);
    const char *(*version)(void);
};

EXPORT OrtStatus *RegisterCustomOps(struct OrtSessionOptions *options, const struct OrtApiBase *base) {
    static int lock;
    Settings settings;
    Registered *made = NULL;
    int is_set = 0;
    OrtStatus *status;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    api_number = atoi(strchr(base->version(), '.') + 1);
    api = base->get(api_number);
    if (api_number < MIN_API)
        status = fail(NOT_IMPLEMENTED, "unpool: onnxruntime 1.17 or later is needed. Install a newer one.");
    else
        status = HasSessionConfigEntry(options, "unpool.registered", &is_set);
    if (status == NULL && !is_set) { /* a domain may be registered only once for a session */
        status = settings_read(options, &settings);
        if (status == NULL) status = make(&settings, &made);
        int is_ours = settings.values[TRUST_PLANS][0] == '1' || is_own(&settings);
        for (int d = is_ours ? OWN : STANDARD; status == NULL && d < DOMAINS; d++)
            status = AddCustomOpDomain(options, made->domains[d]);
        if (status == NULL) status = AddSessionConfigEntry(options, "unpool.registered", "1");
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return status;
}

/* The digest of the sources that the library was built from, by `unpool/onnxruntime/library.py`. */
EXPORT const char *unpool_sources(void) { return UNPOOL_SOURCES; }
