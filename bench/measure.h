/* What the load generators share: arguments, clock, sockets, and a histogram of latencies. */
#ifndef HEADRACE_BENCH_MEASURE_H
#define HEADRACE_BENCH_MEASURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MILLISECONDS 30000

/* One sentence to stderr, and the end: a figure that is not to be trusted is never printed. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* --- Arguments of the form key=value. --- */

static inline const char *text_argument(int count, char **values, const char *key)
{
    size_t length = strlen(key);
    for (int index = 1; index < count; index++)
        if (strncmp(values[index], key, length) == 0 && values[index][length] == '=')
            return values[index] + length + 1;
    return NULL;
}

static inline uint64_t number_argument(int count, char **values, const char *key, uint64_t otherwise)
{
    const char *text = text_argument(count, values, key);
    if (text == NULL)
        return otherwise;
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (errno != 0 || *text == '\0' || *text == '-' || *end != '\0')
        fail("%s=%s is not a number", key, text);
    return number;
}

static inline uint8_t *read_whole(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    if (fseek(file, 0, SEEK_END) != 0)
        fail("%s: %s", path, strerror(errno));
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (data == NULL)
        fail("no memory for %ld bytes", size);
    if (size < 0 || fread(data, 1, (size_t)size, file) != (size_t)size)
        fail("%s: cannot be read", path);
    fclose(file);
    *length = (size_t)size;
    return data;
}

/* --- Clock. --- */

static inline uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
           + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* --- Sockets: blocking ones; what must not block says so with MSG_DONTWAIT. --- */

static inline int connect_loopback(uint64_t port)
{
    if (port == 0 || port > 65535)
        fail("port %" PRIu64 " is out of range", port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("cannot connect to port %" PRIu64 ": %s", port, strerror(errno));
    int on = 1;
    struct timeval patience = {.tv_sec = WAIT_MILLISECONDS / 1000};
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0
        || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0)
        fail("socket option: %s", strerror(errno));
    return fd;
}

static inline void send_whole(int fd, const void *data, size_t length)
{
    const uint8_t *rest = data;
    while (length > 0) {
        ssize_t sent = send(fd, rest, length, MSG_NOSIGNAL);
        if (sent < 0)
            fail("send: %s", strerror(errno));
        rest += sent;
        length -= (size_t)sent;
    }
}

static inline void receive_whole(int fd, void *data, size_t length)
{
    uint8_t *rest = data;
    while (length > 0) {
        ssize_t got = recv(fd, rest, length, 0);
        if (got < 0)
            fail("receive: %s", strerror(errno));
        if (got == 0)
            fail("the server closed the connection");
        rest += got;
        length -= (size_t)got;
    }
}

/* Gives the bytes received, or 0 when there are none yet; with `wait` there are always some. */
static inline size_t receive_some(int fd, void *data, size_t length, int wait)
{
    ssize_t got = recv(fd, data, length, wait ? 0 : MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        fail("the server closed the connection");
    if (wait && (errno == EAGAIN || errno == EWOULDBLOCK))
        fail("no answer in %d s", WAIT_MILLISECONDS / 1000);
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        fail("receive: %s", strerror(errno));
    return 0;
}

/* --- Histogram: 64 steps in each doubling of a nanosecond, so a figure is off by 1.6 % at most. --- */

#define STEPS 64
#define STEP_BITS 6
#define BUCKETS ((64 - STEP_BITS + 1) * STEPS)

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total;
    uint64_t max;
};

static inline void add_latency(struct histogram *histogram, uint64_t ns)
{
    int shift = ns < STEPS ? 0 : 63 - __builtin_clzll(ns) - STEP_BITS;
    size_t bucket = (size_t)shift * STEPS + (size_t)(ns >> shift);
    histogram->counts[bucket]++;
    histogram->total++;
    if (ns > histogram->max)
        histogram->max = ns;
}

/* Gives the middle of the bucket in which this share of the latencies ends, in microseconds. */
static inline double quantile_us(const struct histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)((double)histogram->total * share);
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen > wanted) {
            size_t shift = bucket < 2 * STEPS ? 0 : bucket / STEPS - 1;
            double middle = (double)((bucket - shift * STEPS) << shift) + (double)(1ull << shift) / 2;
            return (middle < (double)histogram->max ? middle : (double)histogram->max) / 1e3;
        }
    }
    return (double)histogram->max / 1e3;
}

static inline void print_latencies(const struct histogram *histogram)
{
    printf("\"p50_us\":%.2f,\"p99_us\":%.2f,\"p999_us\":%.2f,\"max_us\":%.2f",
           quantile_us(histogram, 0.5), quantile_us(histogram, 0.99),
           quantile_us(histogram, 0.999), (double)histogram->max / 1e3);
}

#endif
