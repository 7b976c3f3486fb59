// What torch_npu links but the simulator does not have. A call fails with the function's name; nothing pretends to succeed.
#include <cstdint>
#include <ctime>
#include <string>

namespace asim {
int fail(int code, const std::string& message);

// Not ACL_ERROR_RT_FEATURE_NOT_SUPPORT, which torch_npu takes for a warning.
constexpr int API_NOT_SUPPORTED = 200001;
static int unsupported(const char* name) {
    return fail(API_NOT_SUPPORTED, std::string(name) + " is not simulated");
}
}  // namespace asim

#define UNSUPPORTED(name) \
    extern "C" int name() { return asim::unsupported(#name); }
#define UNSUPPORTED_NULL(name)      \
    extern "C" void* name() {       \
        asim::unsupported(#name);   \
        return nullptr;             \
    }
#define UNSUPPORTED_CPP(symbol, text) \
    extern "C" int asim_cpp_##symbol() __asm__(#symbol); \
    int asim_cpp_##symbol() { return asim::unsupported(text); }

// Operators compiled one by one from a description: Ascend 950 has aclnn functions only.
UNSUPPORTED_NULL(aclCreateDataBuffer)
UNSUPPORTED_NULL(aclCreateTensorDesc)
UNSUPPORTED_NULL(aclopCreateAttr)
UNSUPPORTED(aclDestroyDataBuffer)
UNSUPPORTED(aclDestroyTensorDesc)
UNSUPPORTED(aclGetTensorDescDimV2)
UNSUPPORTED(aclGetTensorDescFormat)
UNSUPPORTED(aclGetTensorDescNumDims)
UNSUPPORTED(aclGetTensorDescType)
UNSUPPORTED(aclSetTensorDescName)
UNSUPPORTED(aclSetTensorFormat)
UNSUPPORTED(aclSetTensorPlaceMent)
UNSUPPORTED(aclSetTensorShape)
UNSUPPORTED(aclopCompileAndExecute)
UNSUPPORTED(aclopDestroyAttr)
UNSUPPORTED(aclopSetAttrBool)
UNSUPPORTED(aclopSetAttrDataType)
UNSUPPORTED(aclopSetAttrFloat)
UNSUPPORTED(aclopSetAttrInt)
UNSUPPORTED(aclopSetAttrListBool)
UNSUPPORTED(aclopSetAttrListFloat)
UNSUPPORTED(aclopSetAttrListInt)
UNSUPPORTED(aclopSetAttrListListInt)
UNSUPPORTED(aclopSetAttrString)

// Dumps of models.
UNSUPPORTED(aclmdlFinalizeDump)
UNSUPPORTED(aclmdlInitDump)
UNSUPPORTED(aclmdlSetDump)

// Virtual memory, sharing between processes and devices.
UNSUPPORTED(aclrtDeviceEnablePeerAccess)
UNSUPPORTED(aclrtDeviceGetBareTgid)
UNSUPPORTED(aclrtFreePhysical)
UNSUPPORTED(aclrtMallocPhysical)
UNSUPPORTED(aclrtMapMem)
UNSUPPORTED(aclrtMemExportToShareableHandle)
UNSUPPORTED(aclrtMemImportFromShareableHandle)
UNSUPPORTED(aclrtMemSetPidToShareableHandle)
UNSUPPORTED(aclrtReleaseMemAddress)
UNSUPPORTED(aclrtReserveMemAddress)
UNSUPPORTED(aclrtUnmapMem)

// Kernels launched by address.
UNSUPPORTED(aclrtGetFunctionAddr)
UNSUPPORTED(rtDevBinaryRegister)
UNSUPPORTED(rtFunctionRegister)
UNSUPPORTED(rtGetC2cCtrlAddr)
UNSUPPORTED(rtKernelLaunch)

// The transformer boost library.
UNSUPPORTED_CPP(_ZN3atb13CreateContextEPPNS_7ContextE, "atb::CreateContext")
UNSUPPORTED_CPP(_ZN3atb14DestroyContextEPNS_7ContextE, "atb::DestroyContext")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer11LinearParamEEEiRKT_PPNS_9OperationE, "atb::CreateOperation<LinearParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer12ElewiseParamEEEiRKT_PPNS_9OperationE, "atb::CreateOperation<ElewiseParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer12RmsNormParamEEEiRKT_PPNS_9OperationE, "atb::CreateOperation<RmsNormParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer14GroupTopkParamEEEiRKT_PPNS_9OperationE, "atb::CreateOperation<GroupTopkParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer18SelfAttentionParamEEEiRKT_PPNS_9OperationE,
                "atb::CreateOperation<SelfAttentionParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer19PagedAttentionParamEEEiRKT_PPNS_9OperationE,
                "atb::CreateOperation<PagedAttentionParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer20ReshapeAndCacheParamEEEiRKT_PPNS_9OperationE,
                "atb::CreateOperation<ReshapeAndCacheParam>")
UNSUPPORTED_CPP(_ZN3atb15CreateOperationINS_5infer9RopeParamEEEiRKT_PPNS_9OperationE, "atb::CreateOperation<RopeParam>")
UNSUPPORTED_CPP(_ZN3atb16DestroyOperationEPNS_9OperationE, "atb::DestroyOperation")
UNSUPPORTED_CPP(_ZN3atb5Utils13GetTensorSizeERKNS_6TensorE, "atb::Utils::GetTensorSize")

// Profiling hooks: no profiler is attached, so there is nothing to hand the reports to. They are not errors.
extern "C" {
int32_t MsprofRegisterCallback(uint32_t, int32_t (*)(uint32_t, void*, uint32_t)) { return 0; }
int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }
uint64_t MsprofGetHashId(const char* text, size_t length) {
    uint64_t hash = 14695981039346656037ull;  // FNV-1a
    for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211ull;
    return hash;
}
uint64_t MsprofSysCycleTime() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000000000ull + static_cast<uint64_t>(time.tv_nsec);
}
}
