/* Preloaded into a node: counts the calls that change or read files of its data folder, and makes
 * one of them fail, or the process die there.
 *
 * The folder and the control file come from the environment. The control file is shared memory: the
 * test reads the counter and the trace from it, and changes the orders while the node runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, SYNC, RENAME, TRUNCATE, UNLINK, ALLOCATE, CREATE, READ, MAKE_FOLDER };
enum { NOTHING, KILL, TEAR, FAIL };

#define TRACE_MAX 65536
#define NAME_MAX_BYTES 56

struct step {
    uint64_t call;
    char name[NAME_MAX_BYTES];
};

/* Mirrored in faults.py. */
struct control {
    uint64_t counter;     /* calls seen that `mask` counts */
    uint64_t mask;        /* bit n: calls of kind n are counted */
    uint64_t action;      /* what happens at the calls that are chosen */
    uint64_t first;       /* number of the first chosen call, from 1; 0 for none */
    uint64_t last;        /* number of the last chosen call */
    uint64_t error;       /* errno of FAIL */
    uint64_t hits;        /* how often it happened */
    uint64_t traced;      /* how many steps of the trace are filled */
    char pattern[128];    /* only calls whose path holds this are counted; empty for all */
    struct step trace[TRACE_MAX];
};

static struct control *control;
static char folder[1024];
static size_t folder_length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CRASH_CONTROL");
    const char *root = getenv("CRASH_FOLDER");
    if (path == NULL || root == NULL || strlen(root) >= sizeof folder)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return;
    strcpy(folder, root);
    folder_length = strlen(folder);
    control = mapped;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int is_ours(const char *path) {
    return strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == 0);
}

static int path_of_fd(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

static int path_at(int fd, const char *name, char *path, size_t size) {
    if (name[0] == '/' || fd == AT_FDCWD) {
        if (strlen(name) >= size)
            return 0;
        strcpy(path, name);
        return 1;
    }
    if (!path_of_fd(fd, path, size - 1))
        return 0;
    size_t length = strlen(path);
    if (length + strlen(name) + 2 > size)
        return 0;
    path[length] = '/';
    strcpy(path + length + 1, name);
    return 1;
}

/* Count a call; give what is to happen at it. KILL happens here. */
static int judge(int call, const char *path) {
    if (control == NULL || !is_ours(path))
        return NOTHING;
    int action = NOTHING;
    pthread_mutex_lock(&lock);
    if ((control->mask >> call & 1) &&
        (control->pattern[0] == 0 || strstr(path, control->pattern) != NULL)) {
        uint64_t number = ++control->counter;
        if (control->traced < TRACE_MAX) {
            struct step *step = &control->trace[control->traced++];
            const char *name = path + folder_length;
            size_t length = strlen(name);
            step->call = call;
            if (length >= NAME_MAX_BYTES)
                name += length - NAME_MAX_BYTES + 1;
            strcpy(step->name, name);
        }
        if (control->first != 0 && control->first <= number && number <= control->last) {
            action = (int)control->action;
            control->hits++;
            if (action == KILL)
                kill(getpid(), SIGKILL);
        }
    }
    pthread_mutex_unlock(&lock);
    return action;
}

static int judge_fd(int call, int fd) {
    char path[2048];
    if (control == NULL || !path_of_fd(fd, path, sizeof path))
        return NOTHING;
    return judge(call, path);
}

static int judge_at(int call, int fd, const char *name) {
    char path[2048];
    if (control == NULL || !path_at(fd, name, path, sizeof path))
        return NOTHING;
    return judge(call, path);
}

#define FAIL_IF(judged) \
    do { \
        int found = (judged); \
        if (found == FAIL) { \
            errno = (int)control->error; \
            return -1; \
        } \
        if (found == TEAR) /* Not a write: it happens whole, or not at all. */ \
            kill(getpid(), SIGKILL); \
    } while (0)

/* A torn write: half of the bytes arrive, and the process dies. */
static void tear(int fd, const void *data, size_t size, off_t position) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (real == NULL)
        real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    if (size > 1)
        real(fd, data, size / 2, position);
    kill(getpid(), SIGKILL);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int action = judge_fd(WRITE, fd);
    if (action == TEAR)
        kill(getpid(), SIGKILL);
    FAIL_IF(action);
    return real(fd, data, size);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t position) { \
        REAL(name); \
        int action = judge_fd(WRITE, fd); \
        if (action == TEAR) \
            tear(fd, data, size, position); \
        FAIL_IF(action); \
        return real(fd, data, size, position); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

static int judge_vector(int fd, const struct iovec *parts, int count, off_t position) {
    int action = judge_fd(WRITE, fd);
    if (action == TEAR && count > 0) {
        static ssize_t (*real)(int, const struct iovec *, int, off_t);
        if (real == NULL)
            real = (ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(RTLD_NEXT, "pwritev64");
        if (count > 1)
            real(fd, parts, count / 2, position);
        else
            tear(fd, parts[0].iov_base, parts[0].iov_len, position);
        kill(getpid(), SIGKILL);
    }
    return action;
}

#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t position) { \
        REAL(name); \
        FAIL_IF(judge_vector(fd, parts, count, position)); \
        return real(fd, parts, count, position); \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t position, int flags) { \
        REAL(name); \
        FAIL_IF(judge_vector(fd, parts, count, position)); \
        return real(fd, parts, count, position, flags); \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

#define PREAD(name) \
    ssize_t name(int fd, void *data, size_t size, off_t position) { \
        REAL(name); \
        FAIL_IF(judge_fd(READ, fd)); \
        return real(fd, data, size, position); \
    }
PREAD(pread)
PREAD(pread64)

#define PREADV2(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t position, int flags) { \
        REAL(name); \
        FAIL_IF(judge_fd(READ, fd)); \
        return real(fd, parts, count, position, flags); \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)

#define SYNC_CALL(name) \
    int name(int fd) { \
        REAL(name); \
        FAIL_IF(judge_fd(SYNC, fd)); \
        return real(fd); \
    }
SYNC_CALL(fsync)
SYNC_CALL(fdatasync)

#define TRUNCATE_CALL(name) \
    int name(int fd, off_t size) { \
        REAL(name); \
        FAIL_IF(judge_fd(TRUNCATE, fd)); \
        return real(fd, size); \
    }
TRUNCATE_CALL(ftruncate)
TRUNCATE_CALL(ftruncate64)

/* These give their error as their value. */
#define ALLOCATE_CALL(name) \
    int name(int fd, off_t position, off_t size) { \
        REAL(name); \
        int action = judge_fd(ALLOCATE, fd); \
        if (action == TEAR) \
            kill(getpid(), SIGKILL); \
        if (action == FAIL) \
            return (int)control->error; \
        return real(fd, position, size); \
    }
ALLOCATE_CALL(posix_fallocate)
ALLOCATE_CALL(posix_fallocate64)

int rename(const char *from, const char *to) {
    REAL(rename);
    FAIL_IF(judge_at(RENAME, AT_FDCWD, to));
    return real(from, to);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    REAL(renameat);
    FAIL_IF(judge_at(RENAME, to_fd, to));
    return real(from_fd, from, to_fd, to);
}

int unlink(const char *name) {
    REAL(unlink);
    FAIL_IF(judge_at(UNLINK, AT_FDCWD, name));
    return real(name);
}

int unlinkat(int fd, const char *name, int flags) {
    REAL(unlinkat);
    FAIL_IF(judge_at(UNLINK, fd, name));
    return real(fd, name, flags);
}

int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    FAIL_IF(judge_at(MAKE_FOLDER, AT_FDCWD, name));
    return real(name, mode);
}

int mkdirat(int fd, const char *name, mode_t mode) {
    REAL(mkdirat);
    FAIL_IF(judge_at(MAKE_FOLDER, fd, name));
    return real(fd, name, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if (flags & O_CREAT) \
            FAIL_IF(judge_at(CREATE, AT_FDCWD, path)); \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int fd, const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if (flags & O_CREAT) \
            FAIL_IF(judge_at(CREATE, fd, path)); \
        return real(fd, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
