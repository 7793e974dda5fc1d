/* kernels/cpu/cores.h - how many cores this process may keep busy: its affinity, and the CPU quota of its control groups
 * (a container with "2 CPUs" on a machine of 64 sees 64; 64 spinning threads would spend its quota in 3 % of the time). */
#ifndef KERNELS_CPU_CORES_H
#define KERNELS_CPU_CORES_H

/* At least 1. Threads: any. */
int cores_allowed(void);

/* The quota alone, rounded up to whole cores; 0: none is set. root: where the control groups are mounted
 * ("/sys/fs/cgroup"); own: the file that says which ones are ours ("/proc/self/cgroup"). */
int cores_quota(const char *root, const char *own);

#endif
