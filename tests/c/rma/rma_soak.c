/* Random puts, gets and accumulates of all sizes in every kind of window and epoch, with every byte checked. Each rank
 * alone writes its part of every window, and keeps a copy of it. Buffers are rewritten as soon as they may be reused,
 * and windows are freed after the last epoch. Arguments: the first seed; rounds.
 * test: ranks=1,2,3,4 timeout=120 args=1,2 */
#include "rma_check.h"
#include "../soak_data.h"

enum { PART = 1 << 20, ACCESSES = 60, EPOCHS = 4, LONGEST = 300000 };
enum { FENCE, POST, LOCK, LOCK_ALL, WAYS };
enum { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP, CALLS };

/* An access that may be incomplete. */
struct access {
    int call, target, bytes, is_over; /* is_over: complete at the origin, perhaps not at the target */
    size_t from, to;                   /* bytes of the part that it may access */
    MPI_Request request;
    unsigned char *buffer, *result, *expected;
    size_t span, result_span; /* bytes of `buffer`, of `result` */
    struct layout layout;     /* of the result of a get */
};

static unsigned long long plan, own;
static struct window window;
static unsigned char *copies; /* copies of this rank's parts of all targets */
static struct access accesses[ACCESSES];
static int n_accesses, epoch_way;
static unsigned number;

static unsigned char *copy_of(int target)
{
    return copies + (size_t)target * PART;
}

static MPI_Aint place_in(int target, size_t byte)
{
    return place(&window, target, (size_t)rank * PART + byte, 1);
}

static int is_sum(const struct access *a)
{
    return a->call == ACCUMULATE || a->call == GET_ACCUMULATE || a->call == FETCH;
}

/* Returns whether an access to these bytes conflicts with an incomplete access. */
static int collides(int call, int target, size_t from, size_t to)
{
    struct access mine = {.call = call};
    for (int i = 0; i < n_accesses; i++) {
        struct access *a = &accesses[i];
        int both_read = a->call == GET && call == GET;
        if (a->target == target && a->from < to && from < a->to && !both_read && !(is_sum(a) && is_sum(&mine)))
            return 1;
    }
    return 0;
}

/* The access is complete at the origin: its result is checked, and its buffers are rewritten. */
static void end_here(struct access *a)
{
    if (a->is_over)
        return;
    a->is_over = 1;
    size_t block = (size_t)a->layout.block;
    for (size_t at = 0, i = 0; a->result && at < (size_t)a->bytes; at += block, i++) {
        unsigned char *data = a->result + place_of(&a->layout, (size_t)a->bytes, i);
        size_t part = (size_t)a->bytes - at < block ? (size_t)a->bytes - at : block;
        for (size_t k = 0; k < part; k++)
            if (data[k] != a->expected[at + k]) {
                fail(__LINE__, "call %d of %d bytes at %zu of rank %d (%s, epoch %d): byte %zu is %d instead of %d", a->call,
                     a->bytes, a->from, a->target, kind_names[window.kind], epoch_way, at + k, data[k], a->expected[at + k]);
                break;
            }
        memset(data, 0xee, part);
    }
    for (size_t k = 0; k < a->result_span; k++)
        if (a->result[k] != 0xee) {
            fail(__LINE__, "call %d: byte %zu beside the result was written", a->call, k);
            break;
        }
    memset(a->buffer, 0xdd, a->span);
    free(a->buffer);
    free(a->result);
    free(a->expected);
}

/* Completes the accesses to a target, at the target or at the origin only; target -1: all targets. */
static void end_accesses(int target, int there_too)
{
    for (int i = 0; i < n_accesses; i++) {
        struct access *a = &accesses[i];
        if ((target >= 0 && a->target != target) || a->request != MPI_REQUEST_NULL)
            continue;
        end_here(a);
        if (there_too)
            accesses[i--] = accesses[--n_accesses];
    }
}

static void wait_for(struct access *a)
{
    if (a->request == MPI_REQUEST_NULL)
        return;
    OK(MPI_Wait(&a->request, MPI_STATUS_IGNORE));
    end_here(a);
}

static void flush(int target)
{
    for (int i = 0; i < n_accesses; i++)
        if (draw(&own, 2))
            wait_for(&accesses[i]);
    switch (draw(&own, 4)) {
    case 0:
        OK(MPI_Win_flush(target, window.win));
        break;
    case 1:
        OK(MPI_Win_flush_all(window.win));
        break;
    case 2:
        OK(MPI_Win_flush_local(target, window.win));
        end_accesses(target, 0);
        OK(MPI_Win_flush(target, window.win));
        break;
    default:
        OK(MPI_Win_flush_local_all(window.win));
        end_accesses(-1, 0);
        OK(MPI_Win_flush(target, window.win));
    }
    for (int i = 0; i < n_accesses; i++)
        if (accesses[i].target == target)
            wait_for(&accesses[i]);
    end_accesses(target, 1);
}

/* Adds to numbers of the copy, and returns the old ones. */
static void add_to_copy(struct access *a, const unsigned *values)
{
    unsigned char *at = copy_of(a->target) + a->from;
    if (a->expected)
        memcpy(a->expected, at, (size_t)a->bytes);
    for (int i = 0; values && i < a->bytes / 4; i++) {
        unsigned old;
        memcpy(&old, at + 4 * i, 4);
        old += values[i];
        memcpy(at + 4 * i, &old, 4);
    }
}

static void sum(struct access *a, int with_request)
{
    int n = a->bytes / 4, target = a->target, reads = a->call != ACCUMULATE, only_reads = reads && draw(&own, 4) == 0;
    MPI_Aint at = place_in(target, a->from);
    MPI_Win win = window.win;
    MPI_Op op = only_reads ? MPI_NO_OP : MPI_SUM;
    unsigned *values = (unsigned *)(void *)a->buffer, *result = (unsigned *)(void *)a->result;
    for (int i = 0; i < n; i++)
        values[i] = number * 7919u + (unsigned)i;
    add_to_copy(a, only_reads ? NULL : values);
    if (a->call == FETCH)
        OK(MPI_Fetch_and_op(values, result, MPI_UNSIGNED, target, at, op, win));
    else if (reads && with_request)
        OK(MPI_Rget_accumulate(values, n, MPI_UNSIGNED, result, n, MPI_UNSIGNED, target, at, n, MPI_UNSIGNED, op, win,
                               &a->request));
    else if (reads)
        OK(MPI_Get_accumulate(values, n, MPI_UNSIGNED, result, n, MPI_UNSIGNED, target, at, n, MPI_UNSIGNED, op, win));
    else if (with_request)
        OK(MPI_Raccumulate(values, n, MPI_UNSIGNED, target, at, n, MPI_UNSIGNED, op, win, &a->request));
    else
        OK(MPI_Accumulate(values, n, MPI_UNSIGNED, target, at, n, MPI_UNSIGNED, op, win));
}

static void swap(struct access *a)
{
    static const unsigned none = 12345;
    unsigned *value = (unsigned *)(void *)a->buffer, *compared = value + 1, *at = value + 2;
    *value = number;
    memcpy(at, copy_of(a->target) + a->from, 4);
    memcpy(a->expected, at, 4);
    int equal = draw(&own, 2) != 0;
    *compared = equal ? *at : *at ^ none;
    if (equal)
        memcpy(copy_of(a->target) + a->from, value, 4);
    OK(MPI_Compare_and_swap(value, compared, a->result, MPI_UNSIGNED, a->target, place_in(a->target, a->from), window.win));
}

/* Puts and gets, with gaps on both sides. */
static void move(struct access *a, const struct layout *there, int with_request)
{
    int here_count, there_count, target = a->target, puts = a->call == PUT;
    struct layout here = draw_layout(&own, a->bytes);
    MPI_Datatype here_type = type_of(&here, a->bytes, &here_count), there_type = type_of(there, a->bytes, &there_count);
    MPI_Aint at = place_in(target, a->from);
    unsigned char *copy = copy_of(target) + a->from, *data = allocate(span_of(&here, (size_t)a->bytes));
    if (puts) {
        free(a->buffer);
        a->buffer = data;
        a->span = span_of(&here, (size_t)a->bytes);
        write_out(data, &here, a->bytes, number);
        write_out(copy, there, a->bytes, number);
    } else {
        a->result = data;
        a->layout = here;
        a->result_span = span_of(&here, (size_t)a->bytes);
        memset(data, 0xee, a->result_span);
        a->expected = allocate((size_t)a->bytes);
        for (size_t i = 0, from = 0; from < (size_t)a->bytes; i++, from += (size_t)there->block) {
            size_t left = (size_t)a->bytes - from;
            memcpy(a->expected + from, copy + place_of(there, (size_t)a->bytes, i),
                   left < (size_t)there->block ? left : (size_t)there->block);
        }
    }
    if (puts && with_request)
        OK(MPI_Rput(data, here_count, here_type, target, at, there_count, there_type, window.win, &a->request));
    else if (puts)
        OK(MPI_Put(data, here_count, here_type, target, at, there_count, there_type, window.win));
    else if (with_request)
        OK(MPI_Rget(data, here_count, here_type, target, at, there_count, there_type, window.win, &a->request));
    else
        OK(MPI_Get(data, here_count, here_type, target, at, there_count, there_type, window.win));
    if (here_type != MPI_BYTE)
        OK(MPI_Type_free(&here_type));
    if (there_type != MPI_BYTE)
        OK(MPI_Type_free(&there_type));
}

/* One access, if its epoch permits it. */
static void access_somehow(int target, int may_flush)
{
    int call = (int)draw(&own, CALLS), bytes = draw_size(&own) % LONGEST, with_request = may_flush && draw(&own, 3) == 0;
    int numbers = call != PUT && call != GET;
    if (numbers)
        bytes = call == FETCH || call == SWAP ? 4 : bytes / 4 * 4;
    struct layout there = numbers ? (struct layout){.block = bytes + 1} : draw_layout(&own, bytes);
    size_t span = numbers ? (size_t)bytes : span_of(&there, (size_t)bytes);
    size_t from = draw(&own, 3) ? draw(&own, (unsigned)(PART - span)) : draw(&own, 64); /* many at one address */
    if (numbers)
        from = from / 4 * 4;
    if (collides(call, target, from, from + span)) {
        if (!may_flush)
            return;
        flush(target);
    }
    if (n_accesses == ACCESSES) {
        if (!may_flush)
            return;
        for (int to = 0; to < ranks; to++)
            if (epoch_way == LOCK_ALL || to == target)
                flush(to);
    }
    struct access *a = &accesses[n_accesses++];
    number++;
    *a = (struct access){.call = call, .target = target, .bytes = bytes, .from = from, .to = from + span,
                         .request = MPI_REQUEST_NULL, .buffer = allocate(numbers ? (size_t)bytes + 12 : 1),
                         .span = numbers ? (size_t)bytes + 12 : 0, .layout = {.block = bytes + 1}};
    if (numbers && call != ACCUMULATE) {
        a->result_span = (size_t)bytes;
        a->result = allocate((size_t)bytes);
        a->expected = allocate((size_t)bytes);
        memset(a->result, 0xee, (size_t)bytes);
    }
    if (call == SWAP)
        swap(a);
    else if (numbers)
        sum(a, with_request);
    else
        move(a, &there, with_request);
    if (may_flush && draw(&own, 10) == 0)
        flush(target);
    if (n_accesses > 0 && draw(&own, 5) == 0)
        wait_for(&accesses[draw(&own, (unsigned)n_accesses)]);
}

static void wait_for_all(void)
{
    for (int i = 0; i < n_accesses; i++)
        wait_for(&accesses[i]);
}

/* One epoch, of a kind that all ranks have drawn. */
static void run_epoch(MPI_Group all)
{
    int count = (int)draw(&own, 40);
    epoch_way = (int)draw(&plan, WAYS);
    switch (epoch_way) {
    case FENCE:
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, window.win));
        for (int i = 0; i < count; i++)
            access_somehow((int)draw(&own, (unsigned)ranks), 0);
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, window.win));
        break;
    case POST:
        OK(MPI_Win_post(all, 0, window.win));
        OK(MPI_Win_start(all, 0, window.win));
        for (int i = 0; i < count; i++)
            access_somehow((int)draw(&own, (unsigned)ranks), 0);
        OK(MPI_Win_complete(window.win));
        end_accesses(-1, 1);
        OK(MPI_Win_wait(window.win));
        break;
    case LOCK:
        for (int turn = 0; turn < 3; turn++) {
            int target = (int)draw(&own, (unsigned)ranks);
            OK(MPI_Win_lock(draw(&own, 2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, window.win));
            for (int i = 0; i < count / 3; i++)
                access_somehow(target, 1);
            if (draw(&own, 2))
                wait_for_all();
            OK(MPI_Win_unlock(target, window.win));
            wait_for_all();
            end_accesses(-1, 1);
        }
        break;
    default:
        OK(MPI_Win_lock_all(0, window.win));
        for (int i = 0; i < count; i++)
            access_somehow((int)draw(&own, (unsigned)ranks), 1);
        if (draw(&own, 2))
            wait_for_all();
        OK(MPI_Win_unlock_all(window.win));
        wait_for_all();
    }
    end_accesses(-1, 1);
}

/* All ranks see the data of the others in their own memory. */
static void check_parts(void)
{
    unsigned char *theirs = allocate(PART);
    MPI_Request *requests = allocate((size_t)ranks * sizeof *requests);
    meet();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win));
    for (int to = 0; to < ranks; to++)
        OK(MPI_Isend(copy_of(to), PART, MPI_BYTE, to, 7, meeting, &requests[to]));
    for (int from = 0; from < ranks; from++) {
        unsigned char *mine = window.base + (size_t)from * PART;
        size_t wrong = 0;
        OK(MPI_Recv(theirs, PART, MPI_BYTE, from, 7, meeting, MPI_STATUS_IGNORE));
        for (size_t i = 0; i < PART; i++)
            if (theirs[i] != mine[i] && !wrong++)
                fail(__LINE__, "byte %zu of what rank %d has written is %d instead of %d (%s)", i, from, mine[i], theirs[i],
                     kind_names[window.kind]);
        if (wrong > 1)
            fail(__LINE__, "%zu bytes are wrong", wrong);
    }
    OK(MPI_Win_unlock(rank, window.win));
    OK(MPI_Waitall(ranks, requests, MPI_STATUSES_IGNORE));
    free(requests);
    free(theirs);
}

/* Returns whether all ranks are on one host. */
static int are_together(void)
{
    MPI_Comm host;
    int size;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    OK(MPI_Comm_size(host, &size));
    OK(MPI_Comm_free(&host));
    return size == ranks;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 2;
    MPI_Group all;
    start(&argc, &argv);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    plan = seed * 1000003ull, own = seed * 77777ull + (unsigned)rank;
    draw(&plan, 2), draw(&own, 2);
    number = seed % 1000 * 10000;
    copies = allocate((size_t)ranks * PART);
    for (int round = 0; round < rounds && !failures; round++) {
        int kind = (int)draw(&plan, KINDS), epochs = 1 + (int)draw(&plan, EPOCHS), looks = draw(&plan, 2) != 0;
        if (kind == SHARED && !are_together())
            kind = ALLOCATED;
        window = make_window(kind, (size_t)ranks * PART, 1);
        memset(copies, 0, (size_t)ranks * PART);
        for (int i = 0; i < epochs; i++)
            run_epoch(all);
        if (looks)
            check_parts();
        free_window(&window);
    }
    MPI_Group_free(&all);
    free(copies);
    if (failures)
        fprintf(stderr, "rank %d: seed %u\n", rank, seed);
    return finish();
}
