#define _GNU_SOURCE                /* sched_getaffinity */
#include "kernels/cpu/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Two numbers of a file; "max" or -1 stands for no limit. Returns whole cores, 0: no limit or no such file. */
static int quota_of(const char *quota_path, const char *period_path)
{
    FILE *f = fopen(quota_path, "r");
    long long quota = -1, period = 100000;

    if (f == NULL)
        return 0;
    if (fscanf(f, "%lld %lld", &quota, &period) < 1)
        quota = -1;
    fclose(f);
    if (period_path != NULL && (f = fopen(period_path, "r")) != NULL) {
        if (fscanf(f, "%lld", &period) != 1)
            period = 100000;
        fclose(f);
    }
    if (quota <= 0 || period <= 0 || (quota + period - 1) / period > INT_MAX)
        return 0;
    return (int)((quota + period - 1) / period);
}

static int tighter(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The group and all above it: each may have a quota (cgroup v2: cpu.max; v1: cpu.cfs_quota_us). Inside a container the
 * path of the group is often not there and the mount itself is the group. */
static int quota_up(const char *root, const char *controller, char *group)
{
    char path[2 * PATH_MAX], period[2 * PATH_MAX];
    int cores = 0;
    char *slash;

    for (;;) {
        snprintf(path, sizeof path, "%s%s%s/cpu.max", root, controller, group);
        cores = tighter(cores, quota_of(path, NULL));
        snprintf(path, sizeof path, "%s%s%s/cpu.cfs_quota_us", root, controller, group);
        snprintf(period, sizeof period, "%s%s%s/cpu.cfs_period_us", root, controller, group);
        cores = tighter(cores, quota_of(path, period));
        slash = strrchr(group, '/');
        if (slash == NULL)
            return cores;
        *slash = 0;
    }
}

int cores_quota(const char *root, const char *own)
{
    FILE *f = fopen(own, "r");
    char line[PATH_MAX], *controllers, *group;
    int cores = 0;

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {     /* "7:cpu,cpuacct:/group", v2: "0::/group" */
        line[strcspn(line, "\n")] = 0;
        controllers = strchr(line, ':');
        group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = 0;
        controllers++;
        if (*controllers == 0)
            cores = tighter(cores, quota_up(root, "", group));
        else if (strcmp(controllers, "cpu") == 0 || strncmp(controllers, "cpu,", 4) == 0)
            cores = tighter(cores, quota_up(root, "/cpu", group));
    }
    if (f != NULL)
        fclose(f);
    return cores;
}

int cores_allowed(void)
{
    cpu_set_t set;
    int cores = 0;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
    if (cores < 1)
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cores = tighter(cores, cores_quota("/sys/fs/cgroup", "/proc/self/cgroup"));
    return cores > 0 ? cores : 1;
}
