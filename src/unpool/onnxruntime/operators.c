#include "operators.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const domain_names[DOMAINS] = {"", "com.ms.internal.nhwc", "unpool"};
const int operator_types[TYPES] = {FLOAT, DOUBLE, FLOAT16, BFLOAT16, INT8, UINT8};

enum { ONNX = 1 << STANDARD | 1 << CHANNELS_LAST, UNPOOL = 1 << OWN, WIDE_TYPES = 2, FLOAT_TYPES = 4 };

#define WINDOW {"kernel_shape", INT_LIST}, {"strides", INT_LIST}, {"pads", INT_LIST}
#define POOL WINDOW, {"dilations", INT_LIST}, {"auto_pad", TEXT_VALUE}, {"ceil_mode", INT_VALUE}, {"storage_order", INT_VALUE}
#define GROW                                                                                                   \
    WINDOW, {"dilations", INT_LIST}, {"auto_pad", TEXT_VALUE}, {"group", INT_VALUE}, {"output_padding", INT_LIST}, \
        {"output_shape", INT_LIST}
#define ACTIVATION {"activation", TEXT_VALUE}, {"activation_params", FLOAT_LIST}
#define MEANING {"opset", INT_VALUE}, {"channels_last", INT_VALUE}, {"compat", TEXT_VALUE} /* of a node of the domain unpool */

static const Attribute pool[] = {POOL, ACTIVATION, {NULL, 0}};
static const Attribute own_pool[] = {POOL, ACTIVATION, MEANING, {NULL, 0}};
static const Attribute unpool[] = {WINDOW, ACTIVATION, {NULL, 0}};
static const Attribute own_unpool[] = {WINDOW, ACTIVATION, MEANING, {"index_space", TEXT_VALUE}, {NULL, 0}};
static const Attribute grow[] = {GROW, ACTIVATION, {NULL, 0}};
static const Attribute own_grow[] = {GROW, ACTIVATION, MEANING, {"exact", INT_VALUE}, {NULL, 0}};

static const Attribute conv[] = {WINDOW, {"dilations", INT_LIST}, {"auto_pad", TEXT_VALUE}, {"group", INT_VALUE},
                                 ACTIVATION, {"exact", INT_VALUE}, {NULL, 0}};
static const Attribute none[] = {{NULL, 0}};
static const Attribute normalize[] = {{"epsilon", FLOAT_VALUE}, {NULL, 0}};
static const Attribute engine[] = {{"engine", INT_VALUE}, {NULL, 0}};

const Operator operators[OPERATORS] = {
    {"MaxPool", ONNX, TYPES, "T", "Ti", POOLED, pool},
    {"MaxUnpool", ONNX, FLOAT_TYPES, "TIs", "T", UNPOOLED, unpool},
    {"ConvTranspose", ONNX, FLOAT_TYPES, "TTt", "T", GROWN, grow},
    {"MaxPool", UNPOOL, TYPES, "T", "Ti", POOLED, own_pool},
    {"MaxUnpool", UNPOOL, FLOAT_TYPES, "TIs", "T", UNPOOLED, own_unpool},
    {"ConvTranspose", UNPOOL, FLOAT_TYPES, "T*", "T", GROWN, own_grow},
    {"Conv", UNPOOL, FLOAT_TYPES, "T*", "T", CONVOLVED, conv},
    {"Snake", UNPOOL, WIDE_TYPES, "TTt", "Tt", OF_X, none},
    {"InstanceNormalization", UNPOOL, WIDE_TYPES, "TTT", "T", OF_X, normalize},
    {"Engine", UNPOOL, 1, "*", "*", STATED, engine},
};

int64_t data_count(const Operator *operator) { return strcspn(operator->inputs, "*"); }

int type_of(char letter, int type) {
    if (letter == '*') return ANY;
    return letter == 'T' || letter == 't' ? type : INT64;
}

int characteristic_of(char letter) {
    if (letter == '*') return VARIADIC;
    return letter >= 'a' ? OPTIONAL : REQUIRED;
}

/* Types and shapes of outputs. An unknown size is -1, and has a name; no error is raised here, the node runs into it. */

typedef struct Shape {
    int64_t rank, dims[MAX_RANK]; /* rank 0: unknown */
} Shape;

enum { ATTRIBUTE_INT = 1, ATTRIBUTE_INTS = 2, ATTRIBUTE_STRING = 5 }; /* OrtOpAttrType */
enum { NAME = 48, WORD = 16 };

typedef struct Window {
    int64_t size, stride, dilation, begin, end, extra; /* extra: output_padding */
} Window;

static int64_t read_list(const void *context, const char *name, int64_t *values, int64_t most) { /* -1: not set */
    const void *attribute = NULL;
    size_t bytes = 0;
    if (release(ShapeInferContext_GetAttribute(context, name, &attribute)) || attribute == NULL) return -1;
    if (release(ReadOpAttr(attribute, ATTRIBUTE_INTS, values, most * sizeof(int64_t), &bytes))) return most + 1;
    return bytes / sizeof(int64_t);
}

static int64_t read_number(const void *context, const char *name, int64_t otherwise) {
    const void *attribute = NULL;
    size_t bytes = 0;
    int64_t value = otherwise;
    if (release(ShapeInferContext_GetAttribute(context, name, &attribute)) || attribute == NULL) return otherwise;
    return release(ReadOpAttr(attribute, ATTRIBUTE_INT, &value, sizeof value, &bytes)) ? otherwise : value;
}

static void read_word(const void *context, const char *name, const char *otherwise, char word[WORD]) {
    const void *attribute = NULL;
    size_t bytes = 0;
    memset(word, 0, WORD);
    if (!release(ShapeInferContext_GetAttribute(context, name, &attribute)) && attribute != NULL)
        if (release(ReadOpAttr(attribute, ATTRIBUTE_STRING, word, WORD - 1, &bytes))) strcpy(word, "unknown");
    if (word[0] == 0) strcpy(word, otherwise);
}

/* Windows along the spatial axes, 0 where the lists do not fit. */
static int read_windows(const void *context, int64_t axes, const int64_t *sizes, Window *windows) {
    int64_t strides[MAX_RANK], dilations[MAX_RANK], pads[2 * MAX_RANK], extra[MAX_RANK], kernel[MAX_RANK];
    int64_t n_strides = read_list(context, "strides", strides, MAX_RANK), n_kernel, n_pads, n_dilations, n_extra;
    n_kernel = read_list(context, "kernel_shape", kernel, MAX_RANK);
    n_pads = read_list(context, "pads", pads, 2 * MAX_RANK);
    n_dilations = read_list(context, "dilations", dilations, MAX_RANK);
    n_extra = read_list(context, "output_padding", extra, MAX_RANK);
    if ((n_kernel != axes && (n_kernel != -1 || sizes == NULL)) || (n_strides != -1 && n_strides != axes) ||
        (n_pads != -1 && n_pads != 2 * axes) || (n_dilations != -1 && n_dilations != axes) ||
        (n_extra != -1 && n_extra != axes))
        return 0;
    for (int64_t i = 0; i < axes; i++) {
        Window window = {n_kernel == -1 ? sizes[i] : kernel[i], 1, 1, 0, 0, 0};
        if (n_strides != -1) window.stride = strides[i];
        if (n_dilations != -1) window.dilation = dilations[i];
        if (n_pads != -1) window.begin = pads[i], window.end = pads[axes + i];
        if (n_extra != -1) window.extra = extra[i];
        if (window.size < 1 || window.stride < 1 || window.dilation < 1 || window.begin < 0 || window.end < 0 ||
            (window.size | window.stride | window.dilation | window.begin | window.end | window.extra) >> 31)
            return 0;
        windows[i] = window;
    }
    return 1;
}

static int64_t pooled_size(int64_t large, Window window, int is_ceil) { /* as in `unpool/geometry.py` */
    int64_t reach = (window.size - 1) * window.dilation + 1, end = window.end, room;
    if (is_ceil) end = end + window.stride > reach ? reach - 1 : end + window.stride - 1;
    room = large + window.begin + end - reach;
    return room < 0 ? -1 : room / window.stride + 1;
}

static void infer_sizes(int kind, const void *context, int is_last, const char *compat, const Shape *x, const Shape *w,
                        int has_shape, int64_t *y) {
    int64_t rank = x->rank, axes = rank - 2, fixed[MAX_RANK], first = is_last ? 1 : 2, channels = is_last ? rank - 1 : 1;
    int is_weighted = kind == GROWN || kind == CONVOLVED, is_same, is_valid;
    const int64_t *sizes = is_weighted && w->rank == rank ? w->dims + 2 : NULL;
    Window windows[MAX_RANK];
    char auto_pad[WORD];
    y[0] = x->dims[0];
    y[channels] = x->dims[channels];
    if (is_weighted) {
        int64_t group = kind == CONVOLVED ? 1 : read_number(context, "group", 1), maps = -1;
        if (w->rank == rank) maps = w->dims[kind == CONVOLVED ? 0 : 1];
        y[channels] = maps >= 0 && maps < 1 << 30 && group > 0 && group < 1 << 30 ? maps * group : -1;
    }
    if (has_shape || strcmp(compat, "ort") == 0 || !read_windows(context, axes, sizes, windows)) return;
    read_word(context, "auto_pad", "NOTSET", auto_pad);
    is_same = strncmp(auto_pad, "SAME_", 5) == 0, is_valid = strcmp(auto_pad, "VALID") == 0;
    if (kind == GROWN) {
        int64_t count = read_list(context, "output_shape", fixed, MAX_RANK);
        if (count != -1) { /* spatial sizes, or a whole shape */
            for (int64_t i = 0; i < axes; i++)
                if (count == axes || count == rank) y[first + i] = fixed[count - axes + i];
            return;
        }
    }
    for (int64_t i = 0; i < axes; i++) {
        int64_t size = x->dims[first + i], is_ceil;
        Window window = windows[i];
        if (size < 0 || size >> 40 || (!is_same && !is_valid && strcmp(auto_pad, "NOTSET") != 0)) continue;
        if (is_same && kind == CONVOLVED) continue;
        if (is_valid) window.begin = window.end = 0;
        is_ceil = kind == POOLED && !is_valid && read_number(context, "ceil_mode", 0) == 1;
        if (kind == POOLED && is_same)
            y[first + i] = (size + window.stride - 1) / window.stride;
        else if (kind == POOLED || kind == CONVOLVED)
            y[first + i] = pooled_size(size, window, is_ceil);
        else if (kind == UNPOOLED)
            y[first + i] = (size - 1) * window.stride + window.size - window.begin - window.end;
        else if (is_same)
            y[first + i] = size * window.stride;
        else
            y[first + i] = (size - 1) * window.stride + (window.size - 1) * window.dilation + 1 - window.begin -
                           window.end + window.extra;
        if (y[first + i] < 0) y[first + i] = -1;
    }
}

static void read_shape(const void *context, size_t input, int *type, Shape *shape, const char **symbols) {
    OrtShapeInfo *info = NULL; /* the context's */
    size_t rank = 0;
    shape->rank = 0;
    if (release(ShapeInferContext_GetInputTypeShape(context, input, &info)) || info == NULL) return;
    if (release(GetTensorElementType(info, type)) || release(GetDimensionsCount(info, &rank)) || rank > MAX_RANK) return;
    if (release(GetDimensions(info, shape->dims, rank))) return;
    if (symbols != NULL && release(GetSymbolicDimensions(info, symbols, rank))) return;
    shape->rank = rank;
}

static int has_attribute(const void *context, const char *name) {
    const void *attribute = NULL;
    return !release(ShapeInferContext_GetAttribute(context, name, &attribute)) && attribute != NULL;
}

void infer_outputs(const Operator *operator, int domain, const char *compat, void *context) {
    static int64_t names_given;
    Shape x, w = {0};
    int64_t y[MAX_RANK], kind = operator->sizes;
    int type, type_w; /* of the node: onnxruntime asks the first operator of this name for all types */
    int is_compiled = domain == OWN && has_attribute(context, "plans"); /* its model has the sizes */
    int is_last = domain == CHANNELS_LAST || (domain == OWN && read_number(context, "channels_last", 0) == 1);
    const char *symbols[MAX_RANK] = {NULL}, *y_symbols[MAX_RANK];
    char *room, own_compat[WORD];
    size_t inputs = 0, outputs = strlen(operator->outputs);
    if (kind == STATED || release(ShapeInferContext_GetInputCount(context, &inputs)) || inputs == 0) return;
    read_shape(context, 0, &type, &x, symbols);
    if (x.rank < (kind == OF_X ? 1 : 3) || (room = malloc(MAX_RANK * NAME)) == NULL) return;
    if (inputs > 1) read_shape(context, 1, &type_w, &w, NULL);
    for (int64_t i = 0; i < x.rank; i++) y[i] = kind == OF_X && !is_compiled ? x.dims[i] : -1;
    if (domain == OWN) read_word(context, "compat", compat, own_compat), compat = own_compat;
    if (kind != OF_X && !is_compiled)
        infer_sizes(kind, context, is_last, compat, &x, &w, kind == UNPOOLED && inputs == 3, y);
    for (int output = 0; output < (api_number >= CHECKS_OUTPUT_COUNT ? (int)outputs : 1); output++) {
        OrtShapeInfo *info = NULL;
        int64_t dims[MAX_RANK], rank = x.rank, channels = is_last ? rank - 1 : 1;
        int element = type_of(operator->outputs[output], type);
        for (int64_t i = 0; i < rank; i++) { /* indices are (N, C, D1..Dk) in either layout */
            int64_t from = element == INT64 && is_last && i > 0 ? (i == 1 ? rank - 1 : i - 1) : i;
            int is_x = from == 0 || kind == OF_X || (from == channels && kind != GROWN && kind != CONVOLVED);
            dims[i] = y[from];
            y_symbols[i] = "";
            if (dims[i] >= 0) continue;
            y_symbols[i] = room + i * NAME;
            if (is_x && !is_compiled && symbols[from] != NULL && symbols[from][0] != 0)
                y_symbols[i] = symbols[from];
            else
                snprintf(room + i * NAME, NAME, "unpool_size_%lld",
                         (long long)__atomic_add_fetch(&names_given, 1, __ATOMIC_RELAXED));
        }
        if (release(CreateTensorTypeAndShapeInfo(&info))) break;
        if (!release(SetTensorElementType(info, element)) && !release(SetDimensions(info, dims, rank)) &&
            !release(SetSymbolicDimensions(info, y_symbols, rank)))
            release(ShapeInferContext_SetOutputTypeShape(context, output, info));
        ReleaseTensorTypeAndShapeInfo(info);
    }
    free(room);
}
