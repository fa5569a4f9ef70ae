/* Load for NATS JetStream: publishes a batch of messages, waits for all their acknowledgements.
 *
 *   nats port=N subject=TEXT messages=N payload=N [seconds_ms=N] [bytes_max=N]
 *
 * One connection in lockstep: the next batch begins when the last one is acknowledged. Prints one
 * JSON object in which a batch counts as one request; an acknowledgement that is an error ends the
 * program with a sentence.
 */
#include "measure.h"

#define INBOX "_INBOX.headrace"
#define LINE_MAX_BYTES 4096

enum { IN_BYTES = 256 << 10, MESSAGES_MAX = 100000, PAYLOAD_MAX = 1 << 20 };

static struct {
    int fd;
    uint8_t data[IN_BYTES];
    size_t start, end;
    size_t skip;      /* bytes of a payload that are still to come, its line end included */
    int is_ack_start; /* the next bytes begin an acknowledgement */
} in;

static uint64_t acknowledged;

static void take_line(char *line)
{
    if (strncmp(line, "MSG ", 4) == 0) {
        char *length = strrchr(line, ' ');
        in.skip = strtoul(length + 1, NULL, 10) + 2;
        in.is_ack_start = 1;
    } else if (strncmp(line, "PING", 4) == 0) {
        send_whole(in.fd, "PONG\r\n", 6);
    } else if (strncmp(line, "-ERR", 4) == 0) {
        fail("nats-server: %s", line);
    }
}

/* An acknowledgement is JSON; what refuses a message has an "error" in it. */
static int take_payload(void)
{
    size_t there = in.end - in.start;
    if (in.is_ack_start) {
        if (there < in.skip)
            return 0;
        if (memmem(in.data + in.start, in.skip, "\"error\"", 7) != NULL)
            fail("refused: %.*s", (int)in.skip, in.data + in.start);
        in.is_ack_start = 0;
        acknowledged++;
    }
    in.start += in.skip;
    in.skip = 0;
    return 1;
}

static void take_all(void)
{
    for (;;) {
        if (in.skip > 0) {
            if (in.skip > LINE_MAX_BYTES)
                fail("acknowledgement of %zu bytes", in.skip);
            if (!take_payload())
                return;
        }
        uint8_t *end = memchr(in.data + in.start, '\n', in.end - in.start);
        if (end == NULL) {
            if (in.end - in.start > LINE_MAX_BYTES)
                fail("line without an end");
            return;
        }
        *end = '\0';
        take_line((char *)in.data + in.start);
        in.start = (size_t)(end - in.data) + 1;
    }
}

static void receive(int wait)
{
    if (in.start > 0) {
        memmove(in.data, in.data + in.start, in.end - in.start);
        in.end -= in.start;
        in.start = 0;
    }
    in.end += receive_some(in.fd, in.data + in.end, IN_BYTES - in.end, wait);
    take_all();
}

static void greet(uint64_t port)
{
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":\"bench\"}\r\n"
                                "SUB " INBOX " 1\r\nPING\r\n";
    in.fd = connect_loopback(port);
    send_whole(in.fd, hello, sizeof hello - 1);
    char seen[8192] = "";
    size_t length = 0;
    while (strstr(seen, "PONG\r\n") == NULL) {
        if (length == sizeof seen - 1)
            fail("no PONG after CONNECT");
        length += receive_some(in.fd, seen + length, sizeof seen - 1 - length, 1);
        seen[length] = '\0';
    }
    if (strstr(seen, "-ERR") != NULL)
        fail("nats-server: %s", seen);
}

static char *make_batch(const char *subject, uint64_t messages, uint64_t payload, size_t *length)
{
    char head[LINE_MAX_BYTES];
    int head_bytes = snprintf(head, sizeof head, "PUB %s " INBOX " %" PRIu64 "\r\n", subject, payload);
    if (head_bytes < 0 || head_bytes >= (int)sizeof head)
        fail("subject is too long");
    size_t one = (size_t)head_bytes + payload + 2;
    char *batch = malloc(one * messages);
    if (batch == NULL)
        fail("no memory for a batch");
    for (uint64_t index = 0; index < messages; index++) {
        char *place = batch + one * index;
        memcpy(place, head, (size_t)head_bytes);
        for (uint64_t at = 0; at < payload; at++)
            place[(size_t)head_bytes + at] = (char)(rand() & 0xff);
        memcpy(place + head_bytes + payload, "\r\n", 2);
    }
    *length = one * messages;
    return batch;
}

/* Publishes and takes acknowledgements at the same time, so that neither side can wait for ever. */
static void publish(const char *batch, size_t length, uint64_t messages)
{
    uint64_t goal = acknowledged + messages;
    size_t sent = 0;
    while (sent < length) {
        ssize_t some = send(in.fd, batch + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (some >= 0) {
            sent += (size_t)some;
            continue;
        }
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            fail("send: %s", strerror(errno));
        struct pollfd wanted = {.fd = in.fd, .events = POLLIN | POLLOUT};
        if (poll(&wanted, 1, WAIT_MILLISECONDS) == 0)
            fail("no answer in %d s", WAIT_MILLISECONDS / 1000);
        receive(0);
    }
    while (acknowledged < goal)
        receive(1);
}

int main(int count, char **values)
{
    static struct histogram latencies;
    const char *subject = text_argument(count, values, "subject");
    uint64_t messages = number_argument(count, values, "messages", 1);
    uint64_t payload = number_argument(count, values, "payload", 100);
    uint64_t bytes_max = number_argument(count, values, "bytes_max", UINT64_MAX);
    if (subject == NULL || messages < 1 || messages > MESSAGES_MAX || payload > PAYLOAD_MAX)
        fail("subject=TEXT messages=1..%d payload=0..%d", MESSAGES_MAX, PAYLOAD_MAX);
    greet(number_argument(count, values, "port", 0));
    size_t length;
    char *batch = make_batch(subject, messages, payload, &length);
    double cpu = cpu_seconds();
    uint64_t requests = 0, began = now_ns(), now = began;
    uint64_t deadline = began + number_argument(count, values, "seconds_ms", 1000) * 1000000u;
    while (now < deadline && (requests + 1) * length <= bytes_max) {
        uint64_t started = now;
        publish(batch, length, messages);
        now = now_ns();
        add_latency(&latencies, now - started);
        requests++;
    }
    printf("{\"requests\":%" PRIu64 ",\"seconds\":%.6f,\"sent_bytes\":%" PRIu64
           ",\"received_bytes\":0,\"wrong\":0,\"statuses\":{},\"cpu_seconds\":%.6f,",
           requests, (double)(now - began) / 1e9, requests * length, cpu_seconds() - cpu);
    print_latencies(&latencies);
    printf("}\n");
    return 0;
}
