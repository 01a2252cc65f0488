// A load generator that costs little itself: epoll, requests encoded beforehand, nothing decoded that need not be.
//
//   loadgen produce PORT REQUESTS CONNECTIONS DEPTH TOTAL
//       replays the length-prefixed Produce v12 requests of a file (one partition each), DEPTH in flight per connection
//   loadgen fetch PORT TOPIC PARTITIONS CONNECTIONS PARTITION_BYTES TOTAL_BYTES
//       Fetch v12 from offset 0 without a session, the partitions spread over the connections
//   loadgen ping PORT SECONDS
//       ApiVersions v0, one at a time on one connection
//
// Prints one line of JSON. Any error code, reply out of order or closed connection ends it with status 3.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS_MAX = 4096, PARTITIONS_MAX = 64, EVENTS_MAX = 256, STALL_MS = 30000, FETCH_BYTES_MAX = 50 << 20 };

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Request;

typedef struct {
    int fd;
    // What is being sent, and how much of it is gone.
    const uint8_t *sending;
    size_t sending_size, sent;
    // Requests in flight, oldest first, in a ring of `depth` slots.
    int depth, in_flight, first;
    double *started;
    int *expected;
    int next_request;
    uint8_t *reply;
    size_t reply_size, reply_room;
    // Fetch only.
    int partition_count, partitions[PARTITIONS_MAX];
    int64_t offsets[PARTITIONS_MAX];
    uint8_t fetch[4096];
} Connection;

static float *latencies;
static long latency_count, latency_room = 1 << 22;

static void fail(const char *what, long detail) {
    fprintf(stderr, "loadgen: %s %ld\n", what, detail);
    exit(3);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

static uint8_t *put32(uint8_t *p, uint32_t v) {
    p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v;
    return p + 4;
}

static uint8_t *put64(uint8_t *p, uint64_t v) { return put32(put32(p, v >> 32), v); }

static uint8_t *put_varint(uint8_t *p, uint32_t v) {
    for (; v > 127; v >>= 7) *p++ = v | 128;
    *p++ = v;
    return p;
}

static uint32_t get_varint(const uint8_t **p) {
    uint32_t v = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*p)++;
        v |= (uint32_t)(byte & 127) << shift;
        if (byte < 128) return v;
    }
}

static void skip_tags(const uint8_t **p) {
    for (uint32_t left = get_varint(p); left > 0; left--) {
        get_varint(p);
        uint32_t size = get_varint(p);
        *p += size;
    }
}

static int dial(int port, int blocking) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect: errno", errno);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!blocking) fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void add_latency(double s) {
    if (latency_count < latency_room) latencies[latency_count++] = (float)s;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile_us(double share) {
    return latency_count ? latencies[(long)((latency_count - 1) * share)] * 1e6 : 0;
}

static void report(double began, long requests, double bytes) {
    double wall_s = now_s() - began;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu_s = used.ru_utime.tv_sec + used.ru_stime.tv_sec;
    cpu_s += (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"wall_s\": %.4f, \"requests\": %ld, \"bytes\": %.0f, \"client_cpu_s\": %.3f, ", wall_s, requests, bytes, cpu_s);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n", percentile_us(.5), percentile_us(.99), percentile_us(.999), percentile_us(1));
}

static void open_connection(Connection *c, int port, int epoll, int depth, size_t reply_room) {
    c->fd = dial(port, 0);
    c->depth = depth;
    c->started = calloc(depth, sizeof *c->started);
    c->expected = calloc(depth, sizeof *c->expected);
    c->reply_room = reply_room;
    c->reply = malloc(reply_room);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}

// Sends what is pending; returns whether all of it is gone.
static int drain(Connection *c) {
    while (c->sending) {
        ssize_t n = send(c->fd, c->sending + c->sent, c->sending_size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n < 0) fail("send: errno", errno);
        c->sent += n;
        if (c->sent == c->sending_size) c->sending = NULL;
    }
    return 1;
}

static void begin(Connection *c, const uint8_t *bytes, size_t size, int correlation) {
    int slot = (c->first + c->in_flight++) % c->depth;
    c->started[slot] = now_s();
    c->expected[slot] = correlation;
    c->sending = bytes, c->sending_size = size, c->sent = 0;
}

// Reads what is there. Returns the whole reply behind its length prefix, or NULL when none is complete.
static const uint8_t *next_reply(Connection *c, size_t *consumed, size_t *size) {
    for (;;) {
        size_t left = c->reply_size - *consumed;
        if (left >= 4) {
            *size = get32(c->reply + *consumed);
            if (*size + 4 > c->reply_room) fail("reply too big:", *size);
            if (left >= *size + 4) {
                const uint8_t *reply = c->reply + *consumed + 4;
                if ((int)get32(reply) != c->expected[c->first]) fail("reply out of order:", get32(reply));
                add_latency(now_s() - c->started[c->first]);
                c->first = (c->first + 1) % c->depth;
                c->in_flight--;
                *consumed += *size + 4;
                return reply;
            }
        }
        if (*consumed > 0) memmove(c->reply, c->reply + *consumed, left);
        c->reply_size = left;
        *consumed = 0;
        ssize_t n = recv(c->fd, c->reply + left, c->reply_room - left, 0);
        if (n == 0) fail("connection closed, in flight:", c->in_flight);
        if (n < 0 && errno == EAGAIN) return NULL;
        if (n < 0) fail("recv: errno", errno);
        c->reply_size += n;
    }
}

static int wait_for(int epoll, struct epoll_event *events) {
    int n = epoll_wait(epoll, events, EVENTS_MAX, STALL_MS);
    if (n <= 0) fail("nothing came in ms:", STALL_MS);
    return n;
}

// The error code of the one partition in a Produce v12 reply.
static int produce_error(const uint8_t *p) {
    p += 4;
    skip_tags(&p);
    if (get_varint(&p) != 2) fail("topics in a produce reply", -1);
    uint32_t name_size = get_varint(&p) - 1;
    p += name_size;
    if (get_varint(&p) != 2) fail("partitions in a produce reply", -1);
    return (int16_t)get16(p + 4);
}

static int load_requests(const char *path, Request *requests) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("cannot open the requests: errno", errno);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file), at = 0;
    rewind(file);
    uint8_t *bytes = malloc(size);
    if (fread(bytes, 1, size, file) != size) fail("cannot read the requests: errno", errno);
    fclose(file);
    int count = 0;
    for (; at < size && count < REQUESTS_MAX; count++) {
        requests[count].bytes = bytes + at;
        requests[count].size = get32(bytes + at) + 4;
        at += requests[count].size;
    }
    return count;
}

static void produce(int port, const char *path, int connections, int depth, long total) {
    static Request requests[REQUESTS_MAX];
    int request_count = load_requests(path, requests), epoll = epoll_create1(0);
    Connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        open_connection(&all[i], port, epoll, depth, 1 << 20);
        all[i].next_request = i % request_count;
    }
    struct epoll_event events[EVENTS_MAX];
    long sent = 0, done = 0;
    double bytes = 0, began = now_s();
    while (done < total) {
        int n = wait_for(epoll, events);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            size_t consumed = 0, size;
            for (const uint8_t *reply; (reply = next_reply(c, &consumed, &size)); done++) {
                int error = produce_error(reply);
                if (error) fail("produce error", error);
            }
            while (drain(c) && c->in_flight < depth && sent < total) {
                Request *request = &requests[c->next_request];
                begin(c, request->bytes, request->size, get32(request->bytes + 8));
                c->next_request = (c->next_request + 1) % request_count;
                bytes += request->size;
                sent++;
            }
        }
    }
    report(began, done, bytes);
}

static void begin_fetch(Connection *c, const char *topic, int partition_bytes) {
    uint8_t *p = c->fetch + 4;
    p = put32(p, 1 << 16 | 12);  // Fetch, version 12
    p = put32(p, 7);             // correlation id
    *p++ = 0, *p++ = 2, *p++ = 'l', *p++ = 'g', *p++ = 0;
    p = put32(p, -1), p = put32(p, 500), p = put32(p, 1), p = put32(p, FETCH_BYTES_MAX);
    *p++ = 0;                              // isolation level
    p = put32(p, 0), p = put32(p, -1);     // no session
    size_t name_size = strlen(topic);
    p = put_varint(p, 2), p = put_varint(p, name_size + 1);
    memcpy(p, topic, name_size), p += name_size;
    p = put_varint(p, c->partition_count + 1);
    for (int i = 0; i < c->partition_count; i++) {
        p = put32(p, c->partitions[i]), p = put32(p, -1), p = put64(p, c->offsets[i]), p = put32(p, -1);
        p = put64(p, -1), p = put32(p, partition_bytes);
        *p++ = 0;
    }
    *p++ = 0;                      // tags of the topic
    *p++ = 1, *p++ = 1, *p++ = 0;  // no forgotten topics, no rack, no tags
    put32(c->fetch, p - c->fetch - 4);
    begin(c, c->fetch, p - c->fetch, 7);
}

// Moves the offsets behind the whole batches of one partition's records; returns their bytes.
static double take_batches(int64_t *offset, const uint8_t *p, const uint8_t *end) {
    double taken = 0;
    while (p + 61 <= end) {
        uint32_t size = get32(p + 8) + 12;
        if (p + size > end) break;  // cut off by the limit of bytes: comes again
        *offset = get64(p) + get32(p + 23) + 1;
        taken += size;
        p += size;
    }
    return taken;
}

static double take_fetch_reply(Connection *c, const uint8_t *p) {
    double taken = 0;
    p += 4;
    skip_tags(&p);
    int error = (int16_t)get16(p + 4);
    if (error) fail("fetch error", error);
    p += 10;
    for (uint32_t topics = get_varint(&p); topics > 1; topics--) {
        uint32_t name_size = get_varint(&p) - 1;
        p += name_size;
        for (uint32_t partitions = get_varint(&p); partitions > 1; partitions--) {
            int index = get32(p), at = 0;
            if ((error = (int16_t)get16(p + 4))) fail("fetch error of a partition", error);
            p += 30;
            if (get_varint(&p) > 1) fail("aborted transactions", index);
            p += 4;
            uint32_t size = get_varint(&p);
            const uint8_t *end = p + (size ? size - 1 : 0);
            while (at < c->partition_count && c->partitions[at] != index) at++;
            if (at == c->partition_count) fail("partition not asked for", index);
            taken += take_batches(&c->offsets[at], p, end);
            p = end;
            skip_tags(&p);
        }
        skip_tags(&p);
    }
    return taken;
}

static void fetch(int port, const char *topic, int partitions, int connections, int partition_bytes, double total) {
    int epoll = epoll_create1(0);
    Connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        open_connection(&all[i], port, epoll, 1, (size_t)PARTITIONS_MAX * (partition_bytes + 1024) + (2 << 20));
        for (int p = i; p < partitions; p += connections) all[i].partitions[all[i].partition_count++] = p;
    }
    struct epoll_event events[EVENTS_MAX];
    long requests = 0;
    double bytes = 0, began = now_s();
    while (bytes < total) {
        int n = wait_for(epoll, events);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            size_t consumed = 0, size;
            for (const uint8_t *reply; (reply = next_reply(c, &consumed, &size)); requests++) bytes += take_fetch_reply(c, reply);
            if (drain(c) && c->in_flight == 0) {
                begin_fetch(c, topic, partition_bytes);
                drain(c);
            }
        }
    }
    report(began, requests, bytes);
}

static void ping(int port, double seconds) {
    uint8_t request[14] = {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255}, reply[65536];
    int fd = dial(port, 1);
    long done = 0;
    double began = now_s(), at = began;
    for (; at - began < seconds; done++) {
        if (send(fd, request, sizeof request, MSG_NOSIGNAL) != sizeof request) fail("send: errno", errno);
        size_t have = 0;
        while (have < 4 || have < get32(reply) + 4) {
            ssize_t n = recv(fd, reply + have, sizeof reply - have, 0);
            if (n <= 0) fail("recv: errno", errno);
            have += n;
        }
        double answered = now_s();
        add_latency(answered - at);
        at = answered;
    }
    report(began, done, 0);
}

int main(int argc, char **argv) {
    latencies = malloc(latency_room * sizeof *latencies);
    if (argc == 7 && !strcmp(argv[1], "produce")) {
        produce(atoi(argv[2]), argv[3], atoi(argv[4]), atoi(argv[5]), atol(argv[6]));
    } else if (argc == 8 && !strcmp(argv[1], "fetch")) {
        fetch(atoi(argv[2]), argv[3], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), atof(argv[7]));
    } else if (argc == 4 && !strcmp(argv[1], "ping")) {
        ping(atoi(argv[2]), atof(argv[3]));
    } else {
        fprintf(stderr, "usage: loadgen produce|fetch|ping PORT ... (see the head of its source)\n");
        return 2;
    }
    return 0;
}
