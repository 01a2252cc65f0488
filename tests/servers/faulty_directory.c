// Loaded before libc into the processes of a test: calls on files below a directory take long, or fail, as the first line
// of a file says: milliseconds, and of how many calls (in thousandths) that fail half are not done, and half are done
// nevertheless. What the kernel has in memory (preadv2 with RWF_NOWAIT) is no matter of a disk.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { FINE, NOT_DONE, ANSWER_LOST };

static int fault(const char *path) {
    const char *directory = getenv("FAULTY_DIRECTORY"), *control = getenv("FAULTY_CONTROL");
    if (!directory || !control || strncmp(path, directory, strlen(directory)) != 0) return FINE;
    char line[64] = {0};
    int descriptor = REAL(open64)(control, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return FINE;
    ssize_t size = read(descriptor, line, sizeof line - 1);
    close(descriptor);
    int delay_ms = 0, failing = 0;
    if (size <= 0 || sscanf(line, "%d %d", &delay_ms, &failing) != 2) return FINE;
    if (delay_ms) usleep(delay_ms * 1000);
    static __thread unsigned seed = 1;
    int chance = rand_r(&seed) % 1000;
    return chance >= failing ? FINE : chance % 2 ? NOT_DONE : ANSWER_LOST;
}

static int answer(int kind, int done) {
    if (kind == FINE) return done;
    errno = EIO;
    return -1;
}

static int opened(const char *path, int flags, mode_t mode) {
    if (fault(path) == FINE) return REAL(open64)(path, flags, mode);
    errno = EIO;
    return -1;
}

#define MODE_OF(flags, mode)                       \
    mode_t mode = 0;                               \
    if (flags & (O_CREAT | __O_TMPFILE)) {         \
        va_list more;                              \
        va_start(more, flags);                     \
        mode = va_arg(more, mode_t);               \
        va_end(more);                              \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return opened(path, flags, mode);
}

int link(const char *old, const char *new) {
    int kind = fault(new);
    return answer(kind, kind == NOT_DONE ? -1 : REAL(link)(old, new));
}

int unlink(const char *path) {
    int kind = fault(path);
    return answer(kind, kind == NOT_DONE ? -1 : REAL(unlink)(path));
}

static int fault_of(int descriptor) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(name, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return fault(path);
}

ssize_t pread64(int descriptor, void *into, size_t size, off64_t position) {
    if (fault_of(descriptor) == FINE) return REAL(pread64)(descriptor, into, size, position);
    errno = EIO;
    return -1;
}
