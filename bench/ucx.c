/* A ping-pong over UCX's tagged messages between two processes, with the timing of `fastpath bench latency`.
 * bench/agreement compares it with `ucx_perftest -t tag_lat`. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "samples.h"

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static size_t bytes;
static char buffer[1 << 20];
static int leads;

static void check(ucs_status_t status, const char *what) {
    if (status == UCS_OK) return;
    fprintf(stderr, "ucx: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}

static void wait_for(void *request, const char *what) {
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), what);
    if (!request) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
}

static void send_one(void) {
    static const ucp_request_param_t none;
    wait_for(ucp_tag_send_nbx(endpoint, buffer, bytes, 1, &none), "send");
}

static void receive_one(void) {
    static const ucp_request_param_t none;
    wait_for(ucp_tag_recv_nbx(worker, buffer, bytes, 1, (ucp_tag_t)-1, &none), "receive");
}

static void round_trip(void) {
    if (leads) send_one(), receive_one();
    else receive_one(), send_one();
}

static void open_worker(void) {
    ucp_params_t context_params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_context_h context;
    check(ucp_init(&context_params, NULL, &context), "context");
    check(ucp_worker_create(context, &worker_params, &worker), "worker");
}

static void connect_to(int channel) {
    ucp_address_t *own;
    size_t length = 0;
    char theirs[65536];
    check(ucp_worker_get_address(worker, &own, &length), "address");
    if (send(channel, own, length, 0) != (ssize_t)length || recv(channel, theirs, sizeof theirs, 0) <= 0) {
        perror("ucx: exchange of addresses");
        exit(1);
    }
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)theirs};
    check(ucp_ep_create(worker, &params, &endpoint), "endpoint");
}

int main(void) {
    int channels[2];
    bytes = strtoul(getenv("BYTES"), NULL, 10);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channels)) return perror("ucx: socketpair"), 1;
    leads = fork() != 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(leads ? 0 : 1, &one);
    sched_setaffinity(0, sizeof one, &one);
    open_worker();
    connect_to(channels[!leads]);
    measure(round_trip, leads);
    char word = 0;
    if (!leads) {
        /* The last message of this process may still be outstanding: make progress until the leader reports its end. */
        while (recv(channels[1], &word, 1, MSG_DONTWAIT) < 1) ucp_worker_progress(worker);
        return 0;
    }
    print_samples("UCX by this loop", "ucp_tag_send_nbx/ucp_tag_recv_nbx", bytes);
    fflush(stdout);
    send(channels[0], &word, 1, 0);
    wait(NULL);
}
