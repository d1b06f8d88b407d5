/* A stand-in for the NVIDIA driver's library libnvidia-ml.so.1, for machines without a GPU.
 *
 * It answers the calls that Gangline makes, from the environment:
 *   STAND_IN_NVML_GPUS   how many GPUs there are; absent or 0: none
 *   STAND_IN_NVML_LOST   index of a GPU that fell off the bus: its address cannot be read
 *   STAND_IN_NVML_FAIL   set: nvmlInit fails
 * GPUs are at bus 0x10 + index. GPU 2k and 2k+1 share a PCIe switch and two NVLinks; others meet at the CPU.
 * Source of names, types and codes: the NVML API reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gpu { unsigned index; } *device_t;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
} pci_info_t;

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15, DRIVER_NOT_LOADED = 9 };
enum { SINGLE = 10, HOSTBRIDGE = 30 };

static struct gpu gpus[64];

static unsigned number(const char *name, unsigned absent) {
    const char *text = getenv(name);
    return text && *text ? (unsigned)atoi(text) : absent;
}
static int is_lost(device_t gpu) { return gpu->index == number("STAND_IN_NVML_LOST", 1000); }
static int put(char *text, unsigned length, const char *format, unsigned value) {
    snprintf(text, length, format, value, value);
    return OK;
}
static int address(unsigned index, pci_info_t *info) {
    memset(info, 0, sizeof *info);
    info->bus = 0x10 + index;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return OK;
}

int nvmlInit_v2(void) { return getenv("STAND_IN_NVML_FAIL") ? DRIVER_NOT_LOADED : OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in NVML"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("STAND_IN_NVML_GPUS", 0); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *gpu) {
    if (index >= number("STAND_IN_NVML_GPUS", 0)) return INVALID_ARGUMENT;
    gpus[index].index = index;
    *gpu = &gpus[index];
    return OK;
}
int nvmlDeviceGetUUID(device_t gpu, char *text, unsigned length) {
    return put(text, length, "GPU-5a0d1e5f-0000-4000-8000-%012u", gpu->index);
}
int nvmlDeviceGetName(device_t gpu, char *text, unsigned length) {
    (void)gpu;
    return put(text, length, "Stand-in GPU", 0);
}
int nvmlDeviceGetMinorNumber(device_t gpu, unsigned *minor) { *minor = gpu->index; return OK; }
int nvmlDeviceGetPciInfo_v3(device_t gpu, pci_info_t *info) {
    return is_lost(gpu) ? GPU_IS_LOST : address(gpu->index, info);
}
int nvmlDeviceGetTopologyCommonAncestor(device_t one, device_t other, int *level) {
    *level = one->index / 2 == other->index / 2 ? SINGLE : HOSTBRIDGE;
    return OK;
}
int nvmlDeviceGetNvLinkState(device_t gpu, unsigned link, int *active) {
    (void)gpu;
    if (link >= 6) return INVALID_ARGUMENT;
    *active = link < 2;
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t gpu, unsigned link, pci_info_t *info) {
    return link < 2 ? address(gpu->index ^ 1, info) : NOT_SUPPORTED;
}
