/* A profiler for any program: messages and bytes by protocol and peer, and counters of the library.
 *
 * All data comes from the tool interface (MPI_T), and the program need not be recompiled:
 *
 *   events                 each message sent, each put, get and accumulate
 *   performance variables  copies, sleeps, unexpected messages, calls that read and write files
 *
 * A message raises `post_short`, or `post` and, once it has been sent whole, `post_eager`. Messages that are posted and
 * not eager use the rendezvous protocol. MPI_Comm_split_type tells which ranks are on the same host. Rank 0 prints the
 * sums over all ranks to standard error in MPI_Finalize.
 *
 *   mpicc -shared -fPIC -O2 -o libprofiler.so profiler.c
 *   mpiexec -n 4 env LD_PRELOAD=$PWD/libprofiler.so ./program
 *
 * Messages of collective calls are counted too. Programs that use sessions alone are not profiled.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The recorded events, by name. */
enum { SHORT, POSTED, EAGER, PUT, GET, ACCUMULATE, EVENTS };
static const char *const event_names[EVENTS] = {"post_short", "post", "post_eager", "put", "get", "accumulate"};

/* Location of a message's peer. `ELSEWHERE`: not in MPI_COMM_WORLD, or unknown. */
enum { SELF, SAME_HOST, OTHER_HOST, ELSEWHERE, CLASSES };
static const char *const class_names[CLASSES] = {"self", "same host", "other host", "elsewhere"};

typedef struct {
    _Atomic unsigned long long messages, bytes;
} Count;

/* One event: the index of the element with the bytes, and the counts for each peer since MPI_Init. */
typedef struct {
    int bytes_at;
    Count *_Atomic of_peer;
    MPI_T_event_registration registration;
} Seen;

static Seen seen[EVENTS];
static int ranks; /* size of MPI_COMM_WORLD; all other peers share one further entry */
static unsigned char *class_of;
static MPI_T_pvar_session session;
static MPI_T_pvar_handle *counters;
static int variables;

static void count(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety,
                  void *data)
{
    Seen *it = data;
    int peer = -1;
    unsigned long long bytes = 0;
    (void)registration, (void)safety;
    MPI_T_event_read(instance, 0, &peer);
    MPI_T_event_read(instance, it->bytes_at, &bytes);
    /* Several threads may run this callback at once. */
    Count *counts = it->of_peer;
    if (!counts)
        return;
    Count *of = &counts[peer >= 0 && peer < ranks ? peer : ranks];
    atomic_fetch_add_explicit(&of->messages, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->bytes, bytes, memory_order_relaxed);
}

/* Index of the event element with the bytes: the last one. */
static int find_bytes(int index)
{
    int elements = 0, name = 0, text = 0, verbosity, bind;
    MPI_T_enum words;
    MPI_T_event_get_info(index, NULL, &name, &verbosity, NULL, NULL, &elements, &words, NULL, NULL, &text, &bind);
    return elements - 1;
}

/* Runs before MPI_Init, so that the library records events from the start. */
static void ask_for_events(void)
{
    int provided, index;
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
    for (int event = 0; event < EVENTS; event++) {
        Seen *it = &seen[event];
        if (MPI_T_event_get_index(event_names[event], &index) != MPI_SUCCESS) {
            fprintf(stderr, "profiler: this library tells nothing of %s\n", event_names[event]);
            continue;
        }
        it->bytes_at = find_bytes(index);
        MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &it->registration);
        MPI_T_event_register_callback(it->registration, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_INFO_NULL, it, count);
    }
}

/* Finds the ranks of MPI_COMM_WORLD on this host. */
static void classify(void)
{
    MPI_Comm near, parent;
    MPI_Group world, here;
    int rank, size;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Comm_get_parent(&parent);
    class_of = calloc(size + 1, 1);
    /* Events name peers by their number in the job, which differs for spawned processes. */
    memset(class_of, parent == MPI_COMM_NULL ? OTHER_HOST : ELSEWHERE, size);
    class_of[size] = ELSEWHERE;
    if (parent == MPI_COMM_NULL) {
        PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
        PMPI_Comm_group(MPI_COMM_WORLD, &world);
        PMPI_Comm_group(near, &here);
        PMPI_Group_size(here, &size);
        for (int i = 0; i < size; i++) {
            int of_world;
            PMPI_Group_translate_ranks(here, 1, &i, world, &of_world);
            class_of[of_world] = of_world == rank ? SELF : SAME_HOST;
        }
        PMPI_Group_free(&here);
        PMPI_Group_free(&world);
        PMPI_Comm_free(&near);
    }
}

/* Runs after MPI_Init: messages sent before this point are those of the profiler. */
static void start(void)
{
    int count;
    classify();
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_T_pvar_get_num(&variables);
    counters = calloc(variables, sizeof *counters);
    MPI_T_pvar_session_create(&session);
    for (int i = 0; i < variables; i++)
        MPI_T_pvar_handle_alloc(session, i, NULL, &counters[i], &count);
    MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES);
    for (int event = 0; event < EVENTS; event++)
        seen[event].of_peer = calloc(ranks + 1, sizeof(Count));
}

typedef struct {
    unsigned long long messages, bytes;
} Total;

static void print_row(const char *protocol, const char *peers, Total total)
{
    if (total.messages)
        fprintf(stderr, "profiler: %-12s %-12s %14llu %18llu\n", protocol, peers, total.messages, total.bytes);
}

static void print_messages(Total (*of)[CLASSES])
{
    fprintf(stderr, "profiler: %-12s %-12s %14s %18s\n", "protocol", "peer", "messages", "bytes");
    for (int class = 0; class < CLASSES; class ++) {
        Total posted = of[POSTED][class], eager = of[EAGER][class];
        Total announced = {posted.messages - eager.messages, posted.bytes - eager.bytes};
        print_row("short", class_names[class], of[SHORT][class]);
        print_row("eager", class_names[class], eager);
        print_row("rendezvous", class_names[class], announced);
        for (int event = PUT; event < EVENTS; event++)
            print_row(event_names[event], class_names[class], of[event][class]);
    }
}

static void print_variables(const unsigned long long *values)
{
    char name[128], text[256];
    for (int i = 0; i < variables; i++) {
        int room = sizeof name, length = sizeof text, verbosity, class, bind, readonly, continuous, atomic;
        MPI_Datatype datatype;
        MPI_T_enum words;
        MPI_T_pvar_get_info(i, name, &room, &verbosity, &class, &datatype, &words, text, &length, &bind, &readonly,
                            &continuous, &atomic);
        if (class == MPI_T_PVAR_CLASS_COUNTER && values[i])
            fprintf(stderr, "profiler: %14llu %s\n", values[i], text);
    }
}

/* Runs before MPI_Finalize. Sums are taken before they are sent, so they exclude the messages that carry them. */
static void report(void)
{
    Total of[EVENTS][CLASSES] = {{{0}}};
    unsigned long long *values = calloc(variables, sizeof *values), *sums = calloc(variables, sizeof *sums);
    int rank;
    for (int event = 0; event < EVENTS; event++)
        for (int peer = 0; peer <= ranks; peer++) {
            Count *count = &seen[event].of_peer[peer];
            of[event][class_of[peer]].messages += atomic_load(&count->messages);
            of[event][class_of[peer]].bytes += atomic_load(&count->bytes);
        }
    for (int i = 0; i < variables; i++)
        MPI_T_pvar_read(session, counters[i], &values[i]);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void *all = rank ? (void *)of : MPI_IN_PLACE;
    PMPI_Reduce(all, of, 2 * EVENTS * CLASSES, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    PMPI_Reduce(values, sums, variables, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        fprintf(stderr, "profiler: %d ranks\n", ranks);
        print_messages(of);
        print_variables(sums);
    }
    free(values);
    free(sums);
}

static void stop(void)
{
    MPI_T_pvar_session_free(&session);
    for (int event = 0; event < EVENTS; event++)
        MPI_T_event_handle_free(seen[event].registration, NULL, NULL);
    MPI_T_finalize();
}

int MPI_Init(int *argc, char ***argv)
{
    ask_for_events();
    int code = PMPI_Init(argc, argv);
    start();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    ask_for_events();
    int code = PMPI_Init_thread(argc, argv, required, provided);
    start();
    return code;
}

int MPI_Finalize(void)
{
    report();
    int code = PMPI_Finalize();
    stop();
    return code;
}
