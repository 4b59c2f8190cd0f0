/* Environment: clock, names, predefined attributes, memory, version strings.
 * test: ranks=1,2,4 */
#include "../check.h"
#include <time.h>
#include <unistd.h>

static void check_clock(void)
{
    double tick = MPI_Wtick();
    CHECK(tick > 0 && tick < 1e-3);
    double last = MPI_Wtime();
    for (int i = 0; i < 100000; i++) {
        double now = MPI_Wtime();
        if (now < last) {
            fail(__LINE__, "the clock goes back by %g s", last - now);
            break;
        }
        last = now;
    }
    /* MPI_Wtime against the kernel's clock, over the time of the loop: at most 1 % apart. Readings of MPI_Wtime enclose
     * those of the other clock and are enclosed by them, so that a delay of the rank has no effect. */
    struct timespec a, b;
    double around = MPI_Wtime();
    clock_gettime(CLOCK_MONOTONIC, &a);
    double within = MPI_Wtime(), end, seconds;
    do {
        end = MPI_Wtime();
        clock_gettime(CLOCK_MONOTONIC, &b);
        seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    } while (seconds < 0.2);
    CHECK(MPI_Wtime() - around > 0.99 * seconds);
    CHECK(end - within < 1.01 * seconds);
}

static void check_attributes(void)
{
    int *value, flag = 0;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag));
    SAME(flag, 1);
    CHECK(flag && *value >= 32767);
    int bound = flag ? *value : 0, other = 0;
    /* A message with the largest tag arrives. */
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, bound, &other, 1, MPI_INT, (rank + ranks - 1) % ranks, bound,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(other, (rank + ranks - 1) % ranks);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag));
    SAME(flag, 1);
    SAME(flag ? *value : -1, !are_apart());
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag));
    if (flag)
        CHECK(*value >= ranks);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag));
    if (flag)
        SAME(*value, are_apart() ? rank : 0);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag));
    SAME(flag, 1);
    CHECK(flag && *value >= MPI_ERR_LASTCODE);
}

static void check_memory(void)
{
    unsigned char *memory;
    for (int i = 0; i < 50; i++) {
        MPI_Aint bytes = (MPI_Aint)1 << (i % 22);
        OK(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory));
        SAME((size_t)memory % 16, 0);
        fill(memory, (size_t)bytes, 3);
        HOLDS(memory, (size_t)bytes, 3);
        OK(MPI_Free_mem(memory));
    }
    OK(MPI_Alloc_mem(0, MPI_INFO_NULL, &memory));
    OK(MPI_Free_mem(memory));
    /* Messages to and from memory of MPI_Alloc_mem. */
    unsigned char *out, *in;
    OK(MPI_Alloc_mem(1 << 20, MPI_INFO_NULL, &out));
    OK(MPI_Alloc_mem(1 << 20, MPI_INFO_NULL, &in));
    static const int sizes[] = {8, 4096, 10000, 100000, 1 << 20};
    for (int i = 0; i < 5; i++) {
        fill(out, (size_t)sizes[i], (unsigned)rank);
        OK(MPI_Sendrecv(out, sizes[i], MPI_BYTE, (rank + 1) % ranks, 0, in, sizes[i], MPI_BYTE, (rank + ranks - 1) % ranks,
                        0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(in, (size_t)sizes[i], (unsigned)((rank + ranks - 1) % ranks));
    }
    OK(MPI_Free_mem(out));
    OK(MPI_Free_mem(in));
}

/* The hardware resource types are URIs. A process gets a part of a communicator by a type exactly if it is restricted
 * to one instance of the type. The part by shared memory is that of MPI_COMM_TYPE_SHARED. Each call returns a new
 * object. */
static void check_hardware(void)
{
    MPI_Info first, second, hints;
    MPI_Comm part, shared;
    int keys = 0, size, expected;
    OK(MPI_Get_hw_resource_info(&first));
    OK(MPI_Get_hw_resource_info(&second));
    CHECK(first != second);
    OK(MPI_Info_get_nkeys(first, &keys));
    CHECK(keys > 0);
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
    MPI_Comm_size(shared, &expected);
    for (int i = 0; i < keys; i++) {
        char key[MPI_MAX_INFO_KEY + 1], value[8];
        int length = sizeof value, flag = 0;
        OK(MPI_Info_get_nthkey(first, i, key));
        OK(MPI_Info_get_string(first, key, &length, value, &flag));
        CHECK(flag && (strcmp(value, "true") == 0 || strcmp(value, "false") == 0));
        CHECK(strstr(key, "://") != NULL);
        OK(MPI_Info_create(&hints));
        OK(MPI_Info_set(hints, "mpi_hw_resource_type", key));
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, hints, &part));
        SAME(part != MPI_COMM_NULL, strcmp(value, "true") == 0);
        if (part != MPI_COMM_NULL) {
            MPI_Comm_size(part, &size);
            CHECK(size >= 1 && size <= expected);
            if (strcmp(key, "fastpath://shared_memory") == 0)
                SAME(size, expected);
            OK(MPI_Comm_free(&part));
        }
        OK(MPI_Info_free(&hints));
    }
    OK(MPI_Comm_free(&shared));
    OK(MPI_Info_free(&first));
    OK(MPI_Info_free(&second));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    char name[MPI_MAX_PROCESSOR_NAME], host[256];
    int length = -1;
    OK(MPI_Get_processor_name(name, &length));
    CHECK(length > 0 && strlen(name) == (size_t)length);
    gethostname(host, sizeof host);
    CHECK(strncmp(name, host, strlen(host)) == 0);
    check_clock();
    check_attributes();
    check_memory();
    check_hardware();
    OK(MPI_Pcontrol(1));
    return finish();
}
