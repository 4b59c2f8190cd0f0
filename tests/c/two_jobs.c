/* Two jobs that are connected with each other: one waits at a port whose name it writes into a file, the other one comes
 * to it. Messages, collective calls, windows and communicators of both; sockets that processes of two jobs share; a
 * name that was changed; a side that dies.
 * test: only=build
 *
 * usage: two_jobs serve|call FILE all ROUNDS | serve|call FILE dies|vanishes|hangs|late | call FILE wrong | join PATH [null]
 *        | missing */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int serves;

static void write_name(const char *path, const char *name)
{
    char other[500];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *file = fopen(other, "w");
    CHECK(file && fputs(name, file) >= 0 && fclose(file) == 0 && rename(other, path) == 0);
}

static void read_name(const char *path, char *name)
{
    FILE *file;
    while (!(file = fopen(path, "r")))
        usleep(10000);
    CHECK(fgets(name, MPI_MAX_PORT_NAME, file) != NULL);
    fclose(file);
}

/* Every process of one side has messages for every one of the other. */
static void exchange(MPI_Comm inter)
{
    static char out[300000], in[300000];
    const int sizes[] = {0, 8, 5000, 300000};
    int here, there;
    MPI_Comm_size(inter, &here);
    MPI_Comm_remote_size(inter, &there);
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < here * there; i++) {
            int near = serves ? i / there : i % here, far = serves ? i % there : i / here;
            if (near != rank)
                continue;
            unsigned mine = 1 + serves * 1000 + near * 30 + far, theirs = 1 + !serves * 1000 + far * 30 + near;
            MPI_Status status;
            fill(out, sizes[s], mine);
            OK(MPI_Sendrecv(out, sizes[s], MPI_BYTE, far, 7, in, sizes[s], MPI_BYTE, far, 7, inter, &status));
            STATUS(status, far, 7, sizes[s]);
            HOLDS(in, sizes[s], theirs);
        }
    int one = serves ? 100 : 1, sum = 0;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    SAME(sum, serves ? there : 100 * there);
}

/* What is made of a communicator of both. */
static void check_derived(MPI_Comm all)
{
    int size, place, sum = 0, one = 1, half_size = 0;
    MPI_Comm dup, half, halves, shared, same;
    MPI_Group group;
    MPI_Comm_size(all, &size);
    MPI_Comm_rank(all, &place);
    OK(MPI_Comm_dup(all, &dup));
    OK(MPI_Comm_split(dup, place % 2, -place, &half));
    MPI_Comm_size(half, &half_size);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half));
    SAME(sum, half_size);
    /* The last even rank leads the even ones, and the last odd one the odd ones. */
    int last = size - 1, odd = last % 2;
    OK(MPI_Intercomm_create(half, 0, all, place % 2 == odd ? last - 1 : last, 5, &halves));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, halves));
    SAME(sum, size - half_size);
    OK(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
    /* Who shares memory with this process is of its own job. */
    MPI_Comm own;
    int here;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &own));
    MPI_Comm_size(own, &here);
    MPI_Comm_size(shared, &sum);
    SAME(sum, here);
    OK(MPI_Comm_free(&own));
    OK(MPI_Comm_group(all, &group));
    OK(MPI_Comm_create_from_group(group, "two jobs", MPI_INFO_NULL, MPI_ERRORS_RETURN, &same));
    OK(MPI_Barrier(same));
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_free(&same));
    OK(MPI_Comm_free(&shared));
    OK(MPI_Comm_free(&halves));
    OK(MPI_Comm_free(&half));
    OK(MPI_Comm_free(&dup));
}

static void check_collectives(MPI_Comm all)
{
    int size, place, own[2] = {rank, serves}, one = 1, sum = 0;
    MPI_Comm_size(all, &size);
    MPI_Comm_rank(all, &place);
    SAME(place, serves ? rank : size - ranks + rank);
    int *list = calloc(2 * size, sizeof *list), *mine = calloc(size, sizeof *mine), *got = calloc(size, sizeof *got);
    OK(MPI_Allgather(own, 2, MPI_INT, list, 2, MPI_INT, all));
    for (int i = 0; i < size; i++) {
        int of_server = i < (serves ? ranks : size - ranks);
        SAME(list[2 * i + 1], of_server);
        SAME(list[2 * i], of_server ? i : i - (serves ? ranks : size - ranks));
        mine[i] = 100 * place + i;
    }
    OK(MPI_Alltoall(mine, 1, MPI_INT, got, 1, MPI_INT, all));
    for (int i = 0; i < size; i++)
        SAME(got[i], 100 * i + place);
    MPI_Request request;
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(sum, size);
    int length = 100000, *data = malloc(length * sizeof *data);
    for (int root = 0; root < size; root += size - 1 ? size - 1 : 1) {
        for (int i = 0; i < length; i++)
            data[i] = place == root ? i + root : -1;
        OK(MPI_Bcast(data, length, MPI_INT, root, all));
        SAME(data[length - 1], length - 1 + root);
    }
    free(data);
    free(list);
    free(mine);
    free(got);
}

/* Puts, atomic operations and locks reach the other job's memory. */
static void check_window(MPI_Comm all)
{
    int size, place, one = 1, before, *own;
    MPI_Win win;
    MPI_Comm_size(all, &size);
    MPI_Comm_rank(all, &place);
    OK(MPI_Win_allocate((size + 1) * sizeof *own, sizeof *own, MPI_INFO_NULL, all, &own, &win));
    for (int i = 0; i <= size; i++)
        own[i] = i < size ? -1 : 0;
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < size; i++)
        OK(MPI_Put(&place, 1, MPI_INT, i, place, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < size; i++)
        SAME(own[i], i);
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < size; i++)
        OK(MPI_Fetch_and_op(&one, &before, MPI_INT, i, size, MPI_SUM, win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(all));
    for (int i = 0; i < size; i++) {
        int count = -1;
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, i, 0, win));
        OK(MPI_Get(&count, 1, MPI_INT, i, size, 1, MPI_INT, win));
        OK(MPI_Win_unlock(i, win));
        SAME(count, size);
    }
    OK(MPI_Win_free(&win));
}

static void check_all(const char *name, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        MPI_Comm inter = MPI_COMM_NULL, all;
        int root = round % 2 && serves ? 0 : round % ranks;
        int code = serves ? MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter)
                          : MPI_Comm_connect(name, MPI_INFO_NULL, root, MPI_COMM_WORLD, &inter);
        if (code != MPI_SUCCESS) {
            char text[MPI_MAX_ERROR_STRING];
            int length;
            MPI_Error_string(code, text, &length);
            fail(__LINE__, "%s", text);
            return;
        }
        exchange(inter);
        OK(MPI_Intercomm_merge(inter, !serves, &all));
        check_collectives(all);
        if (round == 0) {
            check_derived(all);
            check_window(all);
        }
        MPI_Comm children = inter;
        CLASS(MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, all, &children, MPI_ERRCODES_IGNORE),
              MPI_ERR_COMM);
        OK(MPI_Comm_free(&all));
        OK(MPI_Comm_disconnect(&inter));
    }
}

/* The calling side dies, `silent`: before it has said anything; the other one gets errors, and goes on. */
static void check_death(const char *name, int silent)
{
    MPI_Comm inter = MPI_COMM_NULL;
    int word = 0, code;
    if (!serves) {
        OK(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
        if (!silent)
            OK(MPI_Send(&word, 1, MPI_INT, 0, 1, inter));
        if (rank == 0)
            raise(SIGKILL);
        MPI_Recv(&word, 1, MPI_INT, 0, 2, inter, MPI_STATUS_IGNORE);
        return;
    }
    OK(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    if (rank == 0) {
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        if (!silent)
            OK(MPI_Recv(&word, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
        code = MPI_Recv(&word, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE);
        CHECK(code != MPI_SUCCESS);
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, text, &length);
        if (!silent && !strstr(text, "another job"))
            fail(__LINE__, "%s", text);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* A call gives up where the other side does not come, and leaves nothing behind: the next one meets. */
static void check_late(const char *path, const char *name)
{
    MPI_Comm inter = MPI_COMM_SELF;
    MPI_Info soon;
    char over[200], word[MPI_MAX_PORT_NAME], text[MPI_MAX_ERROR_STRING];
    int length;
    snprintf(over, sizeof over, "%s.over", path);
    MPI_Info_create(&soon);
    MPI_Info_set(soon, "timeout", "0");
    if (serves)
        read_name(over, word);
    int code = serves ? MPI_Comm_accept(name, soon, 0, MPI_COMM_WORLD, &inter)
                      : MPI_Comm_connect(name, soon, 0, MPI_COMM_WORLD, &inter);
    CLASS(code, MPI_ERR_PORT);
    SAME(inter, MPI_COMM_NULL);
    MPI_Error_string(code, text, &length);
    if (rank == 0)
        CHECK(strstr(text, "for 0 s"));
    if (!serves && rank == 0)
        write_name(over, "over");
    MPI_Info_set(soon, "timeout", "3600");
    if (serves)
        OK(MPI_Comm_accept(name, soon, 0, MPI_COMM_WORLD, &inter));
    else
        OK(MPI_Comm_connect(name, soon, 0, MPI_COMM_WORLD, &inter));
    exchange(inter);
    OK(MPI_Comm_disconnect(&inter));
    MPI_Info_free(&soon);
}

/* Both sides wait for each other. */
static void check_hang(const char *name)
{
    MPI_Comm inter = MPI_COMM_NULL;
    int word;
    if (serves)
        OK(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    else
        OK(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    MPI_Recv(&word, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE);
}

static void check_wrong(char *name)
{
    MPI_Comm inter;
    char *key = name;
    for (int colons = 0; colons < 4; key++)
        colons += *key == ':';
    *key = *key == '0' ? '1' : '0';
    CLASS(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
    SAME(inter, MPI_COMM_NULL);
    key[-1] = 0; /* without a word of where it is */
    CLASS(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
}

/* Two processes of two jobs have a socket; both come to the same path. */
static void check_join(const char *path, int is_null)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    MPI_Comm inter = MPI_COMM_NULL;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), listener = socket(AF_UNIX, SOCK_STREAM, 0);
    serves = bind(listener, (struct sockaddr *)&address, sizeof address) == 0;
    if (serves) {
        SAME(listen(listener, 1), 0);
        fd = accept(listener, NULL, NULL);
        unlink(path);
    } else {
        while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
            usleep(10000);
    }
    for (int round = 0; round < 2; round++) {
        OK(MPI_Comm_join(fd, &inter));
        SAME(inter == MPI_COMM_NULL, is_null);
        if (inter == MPI_COMM_NULL)
            return;
        exchange(inter);
        OK(MPI_Comm_disconnect(&inter));
        char byte = 'x';
        SAME(write(fd, &byte, 1), 1);
        SAME(read(fd, &byte, 1), 1);
    }
    close(fd);
    close(listener);
}

int main(int argc, char **argv)
{
    char name[MPI_MAX_PORT_NAME] = "";
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (!strcmp(argv[1], "join")) {
        check_join(argv[2], argc > 3);
        return finish();
    }
    if (!strcmp(argv[1], "missing")) {
        MPI_Comm inter = MPI_COMM_SELF;
        int codes[2] = {0, 0};
        CLASS(MPI_Comm_spawn(temporary_path("missing/program"), MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes),
              MPI_ERR_SPAWN);
        SAME(inter, MPI_COMM_NULL);
        SAME(codes[0], MPI_ERR_SPAWN);
        SAME(codes[1], MPI_ERR_SPAWN);
        return finish();
    }
    serves = !strcmp(argv[1], "serve");
    if (serves && rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, name));
        OK(MPI_Publish_name(argv[2], MPI_INFO_NULL, name));
        write_name(argv[2], name);
    }
    if (!serves) {
        read_name(argv[2], name);
        /* What a process without a launcher has published is known to itself alone. */
        if (getenv("TWO_JOBS_PUBLISHED")) {
            char found[MPI_MAX_PORT_NAME] = "";
            OK(MPI_Lookup_name(argv[2], MPI_INFO_NULL, found));
            CHECK(strcmp(name, found) == 0);
            CLASS(MPI_Lookup_name("nobody's", MPI_INFO_NULL, found), MPI_ERR_NAME);
        }
    }
    if (!strcmp(argv[3], "all"))
        check_all(name, atoi(argv[4]));
    else if (!strcmp(argv[3], "dies") || !strcmp(argv[3], "vanishes"))
        check_death(name, !strcmp(argv[3], "vanishes"));
    else if (!strcmp(argv[3], "hangs"))
        check_hang(name);
    else if (!strcmp(argv[3], "late"))
        check_late(argv[2], name);
    else
        check_wrong(name);
    if (serves && rank == 0) {
        OK(MPI_Unpublish_name(argv[2], MPI_INFO_NULL, name));
        OK(MPI_Close_port(name));
    }
    return finish();
}
