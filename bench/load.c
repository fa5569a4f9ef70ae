/* Load for a server of the binary protocol: cheap, one thread, no dependencies.
 *
 *   load mode=requests port=N frame=FILE [frames=N] [register=FILE client=N] [connections=N] [depth=N]
 *        [seconds_ms=N] [bytes_max=N] [hold=1] [offset_at=N first=N last=N step=N messages=N]
 *   load mode=send port=N [seconds_ms=N] [bytes_max=N]       raw bytes to a sink that counts them
 *   load mode=receive port=N [seconds_ms=N] [bytes_max=N]    raw bytes from a source
 *
 * requests: each connection sends the frame again and again, `depth` of them on their way at a time;
 * depth 1 is lockstep. With `frames` the file holds so many of one size, which differ only in their
 * beginnings, and connections take them in turn, in the order in which they are opened. With
 * `register` it logs in first and puts the session into its frames; the client ids are `client` and
 * those that follow. With `offset_at` the frame is a poll: the offset at that place goes from `first`
 * up to `last` in steps, round and round, and the reply must begin with that offset and hold as many
 * messages as said.
 *
 * Prints one JSON object. A reply with a status is an error and counted by its code; it counts
 * neither as a request nor with its bytes. Whatever else goes wrong ends the program with a sentence.
 */
#include "measure.h"

enum {
    HEADER_BYTES = 256,
    SIZE_AT = 48,
    COMMAND_AT = 60,
    CLIENT_AT = 128,
    REQUEST_AT = 168,
    SESSION_AT = 184,
    REPLY_REQUEST_AT = 200,
    REPLY_STATUS_AT = 216,
    COMMAND_REPLY = 8,
    COMMAND_EVICTION = 13,
    EVICTION_REASON_AT = 255,
    /* A login reply: result section, user, session. */
    RESULT_AT = HEADER_BYTES,
    LOGIN_SESSION_AT = HEADER_BYTES + 8,
    LOGIN_BYTES_MIN = HEADER_BYTES + 16,
    /* A poll reply: partition, current offset, count, then the first batch. */
    POLL_COUNT_AT = HEADER_BYTES + 12,
    POLL_BASE_OFFSET_AT = HEADER_BYTES + 16 + 8,
    POLL_BYTES_MIN = HEADER_BYTES + 16 + 256,
    /* So much of each reply is looked at; the rest is received and forgotten. */
    HEAD_BYTES = POLL_BYTES_MIN,

    FRAME_BYTES_MAX = 64 << 20,
    CONNECTIONS_MAX = 256,
    DEPTH_MAX = 1024,
    SMALL_BYTES = 16 << 10, /* frames up to this size are gathered into one send */
    OUT_BYTES = 256 << 10,
    IN_BYTES = 256 << 10,
    PIECE_BYTES = 1 << 20,
    STATUS_MAX = 65535,
    PATCHED_BYTES = 512, /* of a large frame, what each connection has a copy of */
};

struct slot {
    uint64_t number; /* of the request on its way, 0 for none */
    uint64_t started;
    uint64_t offset;
};

struct connection {
    int fd;
    /* On its way out: small frames gathered in `out`, or one large frame from `rest_at` on. */
    uint8_t *out;
    size_t out_length, out_sent;
    uint8_t head[PATCHED_BYTES];
    size_t large_sent; /* of the large frame; 0 for none on its way */
    int is_large_waiting;
    /* On its way in: `frame_got` bytes of a frame of `frame_size`, the first ones in `reply`. */
    uint8_t reply[HEAD_BYTES];
    size_t frame_got, frame_size;
    uint64_t number; /* of the next request */
    uint64_t offset; /* of the next poll */
    size_t in_flight;
    struct slot slots[DEPTH_MAX];
};

static struct {
    const uint8_t *frame; /* the first of `frames` */
    size_t frame_bytes, frames;
    size_t connections, depth;
    uint64_t deadline, bytes_left;
    /* Polls only. */
    size_t offset_at;
    uint64_t first, last, step, messages;
} plan;

static struct {
    struct histogram latencies;
    uint64_t requests, sent_bytes, received_bytes, wrong;
    uint64_t statuses[STATUS_MAX + 1];
} seen;

static uint8_t in_buffer[IN_BYTES];

static uint32_t read_u32(const uint8_t *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

static uint64_t read_u64(const uint8_t *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

static void write_u64(uint8_t *data, uint64_t value)
{
    memcpy(data, &value, sizeof value);
}

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* --- Replies. --- */

static void check_kind(const uint8_t *header)
{
    if (header[COMMAND_AT] == COMMAND_EVICTION)
        fail("evicted, reason %d", header[EVICTION_REASON_AT]);
    if (header[COMMAND_AT] != COMMAND_REPLY)
        fail("frame of kind %d where a reply was expected", header[COMMAND_AT]);
    uint32_t size = read_u32(header + SIZE_AT);
    if (size < HEADER_BYTES || size > FRAME_BYTES_MAX)
        fail("reply of %" PRIu32 " bytes", size);
}

static int is_poll_right(const struct connection *connection, const struct slot *slot)
{
    return connection->frame_size >= POLL_BYTES_MIN
           && read_u32(connection->reply + POLL_COUNT_AT) == plan.messages
           && read_u64(connection->reply + POLL_BASE_OFFSET_AT) == slot->offset;
}

static void take_reply(struct connection *connection, uint64_t now)
{
    uint64_t number = read_u64(connection->reply + REPLY_REQUEST_AT);
    struct slot *slot = &connection->slots[number % plan.depth];
    if (number == 0 || slot->number != number)
        fail("reply to request %" PRIu64 ", which is not on its way", number);
    slot->number = 0;
    connection->in_flight--;
    uint32_t status = read_u32(connection->reply + REPLY_STATUS_AT);
    if (status != 0) {
        seen.statuses[status < STATUS_MAX ? status : STATUS_MAX]++;
        return;
    }
    if (plan.offset_at != 0 && !is_poll_right(connection, slot)) {
        seen.wrong++;
        return;
    }
    seen.requests++;
    seen.sent_bytes += plan.frame_bytes;
    seen.received_bytes += connection->frame_size;
    add_latency(&seen.latencies, now - slot->started);
}

/* Cuts what came into frames; a frame may come in any number of pieces. */
static void take_bytes(struct connection *connection, const uint8_t *data, size_t length)
{
    uint64_t now = now_ns();
    while (length > 0) {
        size_t goal = connection->frame_got < HEADER_BYTES ? HEADER_BYTES : connection->frame_size;
        size_t taken = least(goal - connection->frame_got, length);
        if (connection->frame_got < HEAD_BYTES)
            memcpy(connection->reply + connection->frame_got, data,
                   least(taken, HEAD_BYTES - connection->frame_got));
        connection->frame_got += taken;
        data += taken;
        length -= taken;
        if (connection->frame_got < HEADER_BYTES)
            return;
        if (connection->frame_got == HEADER_BYTES) {
            check_kind(connection->reply);
            connection->frame_size = read_u32(connection->reply + SIZE_AT);
        }
        if (connection->frame_got == connection->frame_size) {
            take_reply(connection, now);
            connection->frame_got = 0;
        }
    }
}

/* --- Requests. --- */

static int may_begin(const struct connection *connection)
{
    return plan.bytes_left >= plan.frame_bytes && connection->in_flight < plan.depth
           && connection->slots[connection->number % plan.depth].number == 0;
}

/* Puts number and offset into the connection's own copy of the frame's beginning. */
static void begin(struct connection *connection, uint64_t now)
{
    struct slot *slot = &connection->slots[connection->number % plan.depth];
    *slot = (struct slot){connection->number, now, connection->offset};
    write_u64(connection->head + REQUEST_AT, connection->number++);
    if (plan.offset_at != 0) {
        write_u64(connection->head + plan.offset_at, connection->offset);
        connection->offset += plan.step;
        if (connection->offset >= plan.last)
            connection->offset = plan.first;
    }
    connection->in_flight++;
    plan.bytes_left -= plan.frame_bytes;
}

static void gather_small(struct connection *connection)
{
    uint64_t now = now_ns();
    if (connection->out_sent == connection->out_length)
        connection->out_sent = connection->out_length = 0;
    size_t head_bytes = least(plan.frame_bytes, PATCHED_BYTES);
    while (connection->out_length + plan.frame_bytes <= OUT_BYTES && may_begin(connection)) {
        begin(connection, now);
        uint8_t *place = connection->out + connection->out_length;
        memcpy(place, connection->head, head_bytes);
        memcpy(place + head_bytes, plan.frame + head_bytes, plan.frame_bytes - head_bytes);
        connection->out_length += plan.frame_bytes;
    }
}

static ssize_t send_pieces(struct connection *connection)
{
    struct iovec pieces[2];
    struct msghdr message = {.msg_iov = pieces};
    if (plan.frame_bytes <= SMALL_BYTES) {
        pieces[0].iov_base = connection->out + connection->out_sent;
        pieces[0].iov_len = connection->out_length - connection->out_sent;
        message.msg_iovlen = 1;
    } else {
        size_t sent = connection->large_sent, count = 0;
        if (sent < PATCHED_BYTES)
            pieces[count++] = (struct iovec){connection->head + sent, PATCHED_BYTES - sent};
        size_t rest = sent < PATCHED_BYTES ? PATCHED_BYTES : sent;
        pieces[count++] = (struct iovec){(void *)(plan.frame + rest), plan.frame_bytes - rest};
        message.msg_iovlen = count;
    }
    ssize_t sent = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        fail("send: %s", strerror(errno));
    return sent;
}

static int has_more_to_send(struct connection *connection)
{
    if (plan.frame_bytes <= SMALL_BYTES) {
        gather_small(connection);
        return connection->out_sent < connection->out_length;
    }
    if (!connection->is_large_waiting && may_begin(connection)) {
        begin(connection, now_ns());
        connection->is_large_waiting = 1;
        connection->large_sent = 0;
    }
    return connection->is_large_waiting;
}

/* Sends as much as the window and the socket allow; gives whether the socket was the limit. */
static int send_requests(struct connection *connection)
{
    while (has_more_to_send(connection)) {
        ssize_t sent = send_pieces(connection);
        if (sent < 0)
            return 1;
        if (plan.frame_bytes <= SMALL_BYTES) {
            connection->out_sent += (size_t)sent;
        } else {
            connection->large_sent += (size_t)sent;
            connection->is_large_waiting = connection->large_sent < plan.frame_bytes;
        }
    }
    return 0;
}

/* --- The run. --- */

static void log_in(struct connection *connection, const uint8_t *frame, size_t length, uint64_t id)
{
    uint8_t *own = malloc(length);
    if (own == NULL)
        fail("no memory for the login");
    memcpy(own, frame, length);
    write_u64(own + CLIENT_AT, id);
    send_whole(connection->fd, own, length);
    free(own);
    uint8_t header[HEADER_BYTES];
    receive_whole(connection->fd, header, HEADER_BYTES);
    check_kind(header);
    if (read_u32(header + REPLY_STATUS_AT) != 0)
        fail("login refused with status %" PRIu32, read_u32(header + REPLY_STATUS_AT));
    size_t size = read_u32(header + SIZE_AT);
    if (size < HEADER_BYTES + 4 || size > IN_BYTES)
        fail("login reply of %zu bytes", size);
    receive_whole(connection->fd, in_buffer, size - HEADER_BYTES);
    if (read_u32(in_buffer + RESULT_AT - HEADER_BYTES) != 0)
        fail("login refused with code %" PRIu32, read_u32(in_buffer + 8));
    if (size < LOGIN_BYTES_MIN)
        fail("login reply of %zu bytes", size);
    write_u64(connection->head + CLIENT_AT, id);
    write_u64(connection->head + SESSION_AT, read_u64(in_buffer + LOGIN_SESSION_AT - HEADER_BYTES));
}

static struct connection *open_connections(int count, char **values)
{
    uint64_t port = number_argument(count, values, "port", 0);
    uint64_t client = number_argument(count, values, "client", 1);
    const char *path = text_argument(count, values, "register");
    size_t login_bytes = 0;
    uint8_t *login = path == NULL ? NULL : read_whole(path, &login_bytes);
    if (login != NULL && login_bytes < HEADER_BYTES)
        fail("login frame of %zu bytes", login_bytes);
    struct connection *opened = calloc(plan.connections, sizeof *opened);
    if (opened == NULL)
        fail("no memory for %zu connections", plan.connections);
    uint64_t rounds = plan.step == 0 ? 1 : (plan.last - plan.first) / plan.step;
    for (size_t index = 0; index < plan.connections; index++) {
        struct connection *connection = &opened[index];
        connection->out = malloc(OUT_BYTES);
        if (connection->out == NULL)
            fail("no memory for connection %zu", index);
        connection->number = 1;
        /* Each consumer begins somewhere else, so that they do not read the same bytes at once. */
        connection->offset = plan.first + rounds * index / plan.connections * plan.step;
        memcpy(connection->head, plan.frame + index % plan.frames * plan.frame_bytes,
               least(plan.frame_bytes, PATCHED_BYTES));
        connection->fd = connect_loopback(port);
        if (login != NULL)
            log_in(connection, login, login_bytes, client + index);
    }
    free(login);
    return opened;
}

static void wait_for_any(struct connection *connections, struct pollfd *wanted)
{
    for (size_t index = 0; index < plan.connections; index++)
        wanted[index].fd = connections[index].fd;
    int ready = poll(wanted, plan.connections, WAIT_MILLISECONDS);
    if (ready == 0)
        fail("no answer in %d s", WAIT_MILLISECONDS / 1000);
    if (ready < 0 && errno != EINTR)
        fail("poll: %s", strerror(errno));
}

static void receive_replies(struct connection *connection, int wait)
{
    size_t got;
    do {
        got = receive_some(connection->fd, in_buffer, IN_BYTES, wait);
        if (got > 0)
            take_bytes(connection, in_buffer, got);
        wait = 0;
    } while (got == IN_BYTES);
}

static int is_done(const struct connection *connections)
{
    if (now_ns() >= plan.deadline)
        plan.bytes_left = 0;
    if (plan.bytes_left >= plan.frame_bytes)
        return 0;
    for (size_t index = 0; index < plan.connections; index++)
        if (connections[index].in_flight > 0)
            return 0;
    return 1;
}

static void run_requests(struct connection *connections)
{
    struct pollfd *wanted = calloc(plan.connections, sizeof *wanted);
    if (wanted == NULL)
        fail("no memory for %zu connections", plan.connections);
    for (size_t index = 0; index < plan.connections; index++)
        wanted[index].revents = POLLOUT;
    /* First send, then look at the clock: a lap has a request however short it is. */
    do {
        int is_blocked = 0;
        for (size_t index = 0; index < plan.connections; index++) {
            struct connection *connection = &connections[index];
            if (wanted[index].revents & (POLLIN | POLLERR | POLLHUP))
                receive_replies(connection, 0);
            if (wanted[index].revents != 0) {
                int is_full = send_requests(connection);
                wanted[index].events = (short)(POLLIN | (is_full ? POLLOUT : 0));
            }
            is_blocked |= wanted[index].events & POLLOUT;
        }
        /* One connection with nothing to send waits in the receive itself: one call less. */
        if (plan.connections == 1 && !is_blocked && connections[0].in_flight > 0) {
            receive_replies(&connections[0], 1);
            wanted[0].revents = POLLOUT;
        } else if (!is_done(connections)) {
            wait_for_any(connections, wanted);
        }
    } while (!is_done(connections));
    free(wanted);
}

static void print_statuses(void)
{
    const char *comma = "";
    printf("\"statuses\":{");
    for (size_t status = 0; status <= STATUS_MAX; status++)
        if (seen.statuses[status] > 0) {
            printf("%s\"%zu\":%" PRIu64, comma, status, seen.statuses[status]);
            comma = ",";
        }
    printf("}");
}

static void print_result(double seconds, double cpu)
{
    printf("{\"requests\":%" PRIu64 ",\"seconds\":%.6f,\"sent_bytes\":%" PRIu64
           ",\"received_bytes\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"cpu_seconds\":%.6f,",
           seen.requests, seconds, seen.sent_bytes, seen.received_bytes, seen.wrong, cpu);
    print_statuses();
    printf(",");
    print_latencies(&seen.latencies);
    printf("}\n");
}

/* Only the beginnings are kept for each connection: whatever follows must be the same in all. */
static void read_frames(int count, char **values)
{
    const char *path = text_argument(count, values, "frame");
    if (path == NULL)
        fail("frame=FILE is missing");
    size_t length;
    plan.frame = read_whole(path, &length);
    plan.frames = number_argument(count, values, "frames", 1);
    if (plan.frames < 1 || plan.frames > CONNECTIONS_MAX || length % plan.frames != 0)
        fail("frames=%zu in %zu bytes", plan.frames, length);
    plan.frame_bytes = length / plan.frames;
    size_t head_bytes = least(plan.frame_bytes, PATCHED_BYTES);
    for (size_t index = 1; index < plan.frames; index++)
        if (memcmp(plan.frame + head_bytes, plan.frame + index * plan.frame_bytes + head_bytes,
                   plan.frame_bytes - head_bytes) != 0)
            fail("frame %zu differs behind its beginning", index);
}

static void read_plan(int count, char **values)
{
    read_frames(count, values);
    plan.connections = number_argument(count, values, "connections", 1);
    plan.depth = number_argument(count, values, "depth", 1);
    plan.offset_at = number_argument(count, values, "offset_at", 0);
    plan.first = number_argument(count, values, "first", 0);
    plan.last = number_argument(count, values, "last", 0);
    plan.step = number_argument(count, values, "step", 0);
    plan.messages = number_argument(count, values, "messages", 0);
    if (plan.frame_bytes < HEADER_BYTES || plan.frame_bytes > FRAME_BYTES_MAX)
        fail("frame of %zu bytes", plan.frame_bytes);
    if (plan.connections < 1 || plan.connections > CONNECTIONS_MAX)
        fail("connections=%zu, allowed 1 to %d", plan.connections, CONNECTIONS_MAX);
    if (plan.depth < 1 || plan.depth > DEPTH_MAX)
        fail("depth=%zu, allowed 1 to %d", plan.depth, DEPTH_MAX);
    if (plan.offset_at != 0) {
        if (plan.offset_at + 8 > least(plan.frame_bytes, PATCHED_BYTES))
            fail("offset_at=%zu is outside the frame's beginning", plan.offset_at);
        if (plan.step == 0 || plan.first >= plan.last)
            fail("a poll needs first < last and a step");
    }
}

/* With hold=1: says that all are logged in, and begins when a line comes. Logins cost the server
 * far more than requests, and whoever counts its processor time leaves them out. */
static void wait_for_start(int count, char **values)
{
    if (number_argument(count, values, "hold", 0) == 0)
        return;
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        fail("nobody said when to begin");
}

static void main_requests(int count, char **values)
{
    read_plan(count, values);
    plan.bytes_left = number_argument(count, values, "bytes_max", UINT64_MAX);
    struct connection *connections = open_connections(count, values);
    wait_for_start(count, values);
    double cpu = cpu_seconds();
    uint64_t began = now_ns();
    plan.deadline = began + number_argument(count, values, "seconds_ms", 1000) * 1000000u;
    run_requests(connections);
    print_result((double)(now_ns() - began) / 1e9, cpu_seconds() - cpu);
}

/* --- Raw copies. --- */

static void main_copy(int count, char **values, int is_sending)
{
    int fd = connect_loopback(number_argument(count, values, "port", 0));
    uint64_t bytes_max = number_argument(count, values, "bytes_max", UINT64_MAX);
    uint8_t *piece = malloc(PIECE_BYTES);
    if (piece == NULL)
        fail("no memory for a piece");
    memset(piece, 1, PIECE_BYTES);
    double cpu = cpu_seconds();
    uint64_t began = now_ns(), bytes = 0;
    uint64_t deadline = began + number_argument(count, values, "seconds_ms", 1000) * 1000000u;
    while (bytes < bytes_max && now_ns() < deadline) {
        if (is_sending) {
            send_whole(fd, piece, PIECE_BYTES);
            bytes += PIECE_BYTES;
        } else {
            bytes += receive_some(fd, piece, PIECE_BYTES, 1);
        }
    }
    if (is_sending) {
        uint8_t told[8];
        shutdown(fd, SHUT_WR);
        receive_whole(fd, told, sizeof told);
        if (read_u64(told) != bytes)
            fail("the sink got %" PRIu64 " of %" PRIu64 " bytes", read_u64(told), bytes);
    }
    seen.sent_bytes = is_sending ? bytes : 0;
    seen.received_bytes = is_sending ? 0 : bytes;
    print_result((double)(now_ns() - began) / 1e9, cpu_seconds() - cpu);
}

int main(int count, char **values)
{
    const char *mode = text_argument(count, values, "mode");
    if (mode != NULL && strcmp(mode, "requests") == 0)
        main_requests(count, values);
    else if (mode != NULL && strcmp(mode, "send") == 0)
        main_copy(count, values, 1);
    else if (mode != NULL && strcmp(mode, "receive") == 0)
        main_copy(count, values, 0);
    else
        fail("mode is one of requests, send, receive");
    return 0;
}
