// What examples/onnxruntime/cpp uses of onnxruntime's C++ header, which its Python package lacks: the same names, over
// functions of the C API by their places in the table (see src/unpool/onnxruntime/ort.h).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct OrtApiBase {
    void *(*const *(*get)(uint32_t))();
    const char *(*version)();
};
extern "C" const OrtApiBase *OrtGetApiBase();

enum OrtLoggingLevel { ORT_LOGGING_LEVEL_ERROR = 3 };
enum OrtAllocatorType { OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };

namespace Ort {

template <typename... Arguments>
void *call(int place, Arguments... arguments) {
    return reinterpret_cast<void *(*)(Arguments...)>(OrtGetApiBase()->get(17)[place])(arguments...);
}

struct Exception : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <typename... Arguments>
void check(int place, Arguments... arguments) {
    void *status = call(place, arguments...);
    if (status != nullptr) throw Exception(static_cast<const char *>(call(2, const_cast<const void *>(status))));
}

template <int release>
struct Object {
    void *handle = nullptr;
    Object() = default;
    Object(Object &&other) : handle(other.handle) { other.handle = nullptr; }
    ~Object() {
        if (handle != nullptr) call(release, handle);
    }
};

struct Env : Object<92> {
    Env(OrtLoggingLevel level, const char *name) { check(3, static_cast<int>(level), name, &handle); }
};

struct SessionOptions : Object<100> {
    SessionOptions() { check(10, &handle); }
    void SetIntraOpNumThreads(int count) { check(24, handle, count); }
    void AddConfigEntry(const char *name, const char *value) { check(130, handle, name, value); }
    void RegisterCustomOpsLibrary(const char *path) { check(228, handle, path); }
};

struct RunOptions : Object<97> {
    explicit RunOptions(std::nullptr_t) {}
};

struct MemoryInfo : Object<94> {
    static MemoryInfo CreateCpu(OrtAllocatorType allocator, OrtMemType type) {
        MemoryInfo result;
        check(69, static_cast<int>(allocator), static_cast<int>(type), &result.handle);
        return result;
    }
};

struct ShapeInfo : Object<99> {
    size_t GetElementCount() const {
        size_t count = 0;
        check(64, static_cast<const void *>(handle), &count);
        return count;
    }
};

struct Value : Object<96> {
    template <typename Element>
    static Value CreateTensor(const MemoryInfo &memory, Element *data, size_t count, const int64_t *shape, size_t rank) {
        Value result;
        check(49, static_cast<const void *>(memory.handle), static_cast<void *>(data), count * sizeof(Element), shape, rank,
              1, &result.handle);
        return result;
    }
    template <typename Element>
    const Element *GetTensorData() const {
        void *data = nullptr;
        check(51, handle, &data);
        return static_cast<const Element *>(data);
    }
    ShapeInfo GetTensorTypeAndShapeInfo() const {
        ShapeInfo result;
        check(65, static_cast<const void *>(handle), &result.handle);
        return result;
    }
};

struct AllocatorWithDefaultOptions {
    void *handle = nullptr;
    AllocatorWithDefaultOptions() { check(78, &handle); }
};

struct Session : Object<95> {
    Session(const Env &environment, const char *path, const SessionOptions &options) {
        check(7, environment.handle, path, static_cast<const void *>(options.handle), &handle);
    }
    std::unique_ptr<char[]> GetInputNameAllocated(size_t number, AllocatorWithDefaultOptions &allocator) const {
        return name(36, number, allocator);
    }
    std::unique_ptr<char[]> GetOutputNameAllocated(size_t number, AllocatorWithDefaultOptions &allocator) const {
        return name(37, number, allocator);
    }
    std::vector<Value> Run(const RunOptions &options, const char *const *input_names, const Value *inputs, size_t count,
                           const char *const *output_names, size_t outputs) {
        std::vector<Value> result(outputs);
        check(9, handle, static_cast<const void *>(options.handle), input_names, &inputs->handle, count, output_names,
              outputs, &result.data()->handle);
        return result;
    }

  private:
    std::unique_ptr<char[]> name(int place, size_t number, AllocatorWithDefaultOptions &allocator) const {
        char *name = nullptr;
        check(place, static_cast<const void *>(handle), number, allocator.handle, &name);
        std::string copy(name);
        check(76, allocator.handle, static_cast<void *>(name));
        auto result = std::make_unique<char[]>(copy.size() + 1);
        copy.copy(result.get(), copy.size());
        return result;
    }
};

}  // namespace Ort
