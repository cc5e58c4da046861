/* What a test does to the clocks and the disk of one process, by LD_PRELOAD. What no variable asks for is left alone.
 *
 * SHIM_RATE    how fast the clocks run that count from the start of the machine, e.g. 1.01
 * SHIM_WALL_S  by how many seconds the wall clock is off
 * SHIM_FULL    a file: while it is there, the disk is full
 * SHIM_BELOW   the directory that is on that disk
 *
 * Tenure appends by write, and grows no file otherwise. A disk that becomes full takes a part of the write that fills
 * it, and nothing after that, as real ones do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NANOS 1000000000LL

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_ftruncate64)(int, off64_t);

static double rate = 1.0;
static long long wall_s;
static const char *full;
static const char *below;
static long long monotonic_start, boot_start;
static atomic_int has_taken_a_part;

static long long nanos(const struct timespec *time) { return time->tv_sec * NANOS + time->tv_nsec; }

static long long start_of(clockid_t clock) {
    struct timespec now;
    real_clock_gettime(clock, &now);
    return nanos(&now);
}

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_write = dlsym(RTLD_NEXT, "write");
    real_ftruncate64 = dlsym(RTLD_NEXT, "ftruncate64");
    if (getenv("SHIM_RATE")) rate = atof(getenv("SHIM_RATE"));
    if (getenv("SHIM_WALL_S")) wall_s = atoll(getenv("SHIM_WALL_S"));
    full = getenv("SHIM_FULL");
    below = getenv("SHIM_BELOW");
    monotonic_start = start_of(CLOCK_MONOTONIC);
    boot_start = start_of(CLOCK_BOOTTIME);
}

static void bend(struct timespec *time, long long start) {
    long long passed = nanos(time) - start;
    long long bent = start + (long long)(passed * rate);
    time->tv_sec = bent / NANOS;
    time->tv_nsec = bent % NANOS;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!real_clock_gettime) begin();
    int result = real_clock_gettime(clock, time);
    if (result != 0) return result;
    if (clock == CLOCK_MONOTONIC && rate != 1.0) bend(time, monotonic_start);
    if (clock == CLOCK_BOOTTIME && rate != 1.0) bend(time, boot_start);
    if (clock == CLOCK_REALTIME) time->tv_sec += wall_s;
    return result;
}

/* Whether this is a file on a disk that is full at the moment. */
static int is_full(int fd) {
    if (!full || !below) return 0;
    int before = errno;
    char link[64], path[PATH_MAX];
    struct stat file;
    int is = access(full, F_OK) == 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
    if (is) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        is = length > 0 && strncmp(path, below, strlen(below)) == 0;
    }
    errno = before;
    return is;
}

static int refuse(void) {
    errno = ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    if (!is_full(fd)) return real_write(fd, bytes, count);
    if (count > 1 && !atomic_exchange(&has_taken_a_part, 1)) return real_write(fd, bytes, count / 2);
    return refuse();
}

int ftruncate64(int fd, off64_t length) {
    struct stat file;
    int grows = is_full(fd) && fstat(fd, &file) == 0 && length > file.st_size;
    return grows ? refuse() : real_ftruncate64(fd, length);
}
