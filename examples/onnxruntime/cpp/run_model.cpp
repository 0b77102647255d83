// Runs a compiled model with onnxruntime's C++ API and the library of unpool; no Python is needed.
//
//     run_model LIBRARY MODEL SHAPE INPUT OUTPUT
//
// INPUT has the float32 of an image in row-major order, SHAPE is its shape, such as 1,3,480,640, and OUTPUT gets the
// float32 of the first output. The only lines that concern unpool are the two marked with it.
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static void run(char **arguments) {
    std::vector<int64_t> shape;
    std::stringstream sizes(arguments[3]);
    size_t count = 1;
    for (std::string size; std::getline(sizes, size, ','); count *= shape.back()) shape.push_back(std::stoll(size));
    std::vector<float> values(count);
    std::ifstream file(arguments[4], std::ios::binary);
    file.read(reinterpret_cast<char *>(values.data()), count * sizeof(float));
    if (!file) throw std::runtime_error(std::string(arguments[4]) + ": it has not " + std::to_string(count) + " float32.");

    Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "run_model");
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(2);
    options.AddConfigEntry("unpool.trust_plans", "1");  // unpool: the file is yours
    options.RegisterCustomOpsLibrary(arguments[1]);     // unpool: the operators; on Windows a wide path
    Ort::Session session(environment, arguments[2], options);

    Ort::AllocatorWithDefaultOptions allocator;
    auto input_name = session.GetInputNameAllocated(0, allocator);
    auto output_name = session.GetOutputNameAllocated(0, allocator);
    const char *input_names[] = {input_name.get()}, *output_names[] = {output_name.get()};
    auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    auto input = Ort::Value::CreateTensor<float>(memory, values.data(), values.size(), shape.data(), shape.size());
    auto outputs = session.Run(Ort::RunOptions{nullptr}, input_names, &input, 1, output_names, 1);

    std::ofstream result(arguments[5], std::ios::binary);
    size_t elements = outputs[0].GetTensorTypeAndShapeInfo().GetElementCount();
    result.write(reinterpret_cast<const char *>(outputs[0].GetTensorData<float>()), elements * sizeof(float));
    if (!result.flush()) throw std::runtime_error(std::string(arguments[5]) + ": cannot be written.");
}

int main(int count, char **arguments) {
    if (count != 6) {
        std::cerr << "run_model LIBRARY MODEL SHAPE INPUT OUTPUT\n";
        return 2;
    }
    try {
        run(arguments);
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
