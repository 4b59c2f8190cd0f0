/* Ranks of two hosts: names that one publishes and another looks up, a port between hosts, processes that are spawned on
 * both of them and on a named one, and what is refused. The last rank is on the second host.
 * test: only=build */
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program;

static void exchange(MPI_Comm inter)
{
    int own, there, one = 1, sum = 0;
    static char out[300000], in[300000];
    MPI_Comm_rank(inter, &own);
    MPI_Comm_remote_size(inter, &there);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    SAME(sum, there);
    if (own == 0) {
        fill(out, sizeof out, 5);
        OK(MPI_Sendrecv(out, sizeof out, MPI_BYTE, 0, 3, in, sizeof in, MPI_BYTE, 0, 3, inter, MPI_STATUS_IGNORE));
        HOLDS(in, sizeof in, 5);
    }
}

/* The first rank's name and port are found by the last one, which connects. */
static void check_names(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    int class = 0;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, port));
        OK(MPI_Publish_name(service_of("between hosts"), MPI_INFO_NULL, port));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == ranks - 1) {
        MPI_Error_class(MPI_Lookup_name("nobody's", MPI_INFO_NULL, port), &class);
        SAME(class, MPI_ERR_NAME);
        MPI_Error_class(MPI_Publish_name(service_of("between hosts"), MPI_INFO_NULL, "x"), &class);
        SAME(class, MPI_ERR_SERVICE);
        OK(MPI_Publish_name(service_of("mine"), MPI_INFO_NULL, "nowhere"));
        OK(MPI_Unpublish_name(service_of("mine"), MPI_INFO_NULL, "nowhere"));
        OK(MPI_Lookup_name(service_of("between hosts"), MPI_INFO_NULL, port));
        MPI_Info soon;
        MPI_Info_create(&soon);
        MPI_Info_set(soon, "timeout", "0");
        MPI_Error_class(MPI_Comm_connect(port, soon, 0, MPI_COMM_SELF, &inter), &class);
        SAME(class, MPI_ERR_PORT);
        MPI_Info_free(&soon);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int round = 0; round < 3; round++) {
        if (rank == 0)
            OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
        else if (rank == ranks - 1)
            OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
        else
            continue;
        exchange(inter);
        OK(MPI_Comm_disconnect(&inter));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        OK(MPI_Unpublish_name(service_of("between hosts"), MPI_INFO_NULL, port));
        OK(MPI_Close_port(port));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == ranks - 1) {
        MPI_Error_class(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), &class);
        SAME(class, MPI_ERR_PORT);
    }
}

/* The names of the two hosts. */
static char names[2][MPI_MAX_PROCESSOR_NAME];

/* Four processes on both hosts, or two on a named one; which hosts, by number, they say they are on. */
static void check_spawn(int root, int count, const char *host, const char *hosts)
{
    static char all[4 * MPI_MAX_PROCESSOR_NAME];
    char word[12], *words[] = {word, NULL};
    int codes[4] = {-1, -1, -1, -1};
    MPI_Info info = MPI_INFO_NULL;
    MPI_Comm inter;
    if (host != NULL) {
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "host", host));
    }
    snprintf(word, sizeof word, "%d", root);
    OK(MPI_Comm_spawn(program, words, count, info, root, MPI_COMM_WORLD, &inter, codes));
    for (int i = 0; i < count; i++)
        SAME(codes[i], MPI_SUCCESS);
    exchange(inter);
    OK(MPI_Gather(NULL, 0, MPI_CHAR, all, MPI_MAX_PROCESSOR_NAME, MPI_CHAR,
                  rank == root ? MPI_ROOT : MPI_PROC_NULL, inter));
    for (int i = 0; rank == root && i < count; i++) {
        const char *said = all + i * MPI_MAX_PROCESSOR_NAME;
        CHECK(strcmp(said, names[hosts[i] - '1']) == 0);
    }
    OK(MPI_Comm_disconnect(&inter));
    if (host != NULL)
        OK(MPI_Info_free(&info));
}

static void check_refused(void)
{
    int class = 0, codes[2] = {-1, -1};
    MPI_Info info;
    MPI_Comm inter;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "host", "elsewhere"));
    for (int root = 0; root < ranks; root += ranks - 1) {
        MPI_Error_class(MPI_Comm_spawn("no such program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, root, MPI_COMM_WORLD,
                                       &inter, codes), &class);
        SAME(class, MPI_ERR_SPAWN);
        SAME(codes[1], MPI_ERR_SPAWN);
        MPI_Error_class(MPI_Comm_spawn(program, MPI_ARGV_NULL, 2, info, root, MPI_COMM_WORLD, &inter, codes), &class);
        SAME(class, MPI_ERR_SPAWN);
    }
    OK(MPI_Info_free(&info));
}

int main(int argc, char **argv)
{
    static char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Comm parent;
    int length, *universe, *app, flag;
    program = argv[0];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &flag));
        CHECK(flag && *app == 0);
        exchange(parent);
        OK(MPI_Get_processor_name(name, &length));
        OK(MPI_Gather(name, sizeof name, MPI_CHAR, NULL, 0, MPI_CHAR, atoi(argv[1]), parent));
        OK(MPI_Comm_disconnect(&parent));
    } else {
        OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &flag));
        CHECK(flag && *universe >= ranks);
        for (int i = 0; i < 2; i++) {
            OK(MPI_Get_processor_name(names[i], &length));
            OK(MPI_Bcast(names[i], sizeof names[i], MPI_CHAR, i * (ranks - 1), MPI_COMM_WORLD));
        }
        check_names();
        check_spawn(0, 4, NULL, "1122");
        check_spawn(ranks - 1, 4, NULL, "2211");
        check_spawn(0, 2, names[1], "22");
        check_spawn(ranks - 1, 2, names[0], "11");
        check_refused();
    }
    MPI_Finalize();
    return failures != 0;
}
