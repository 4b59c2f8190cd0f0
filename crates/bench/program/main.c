/* Measures MPI calls, equally for every MPI library. `--list` names the tests, options.c has the options. */
#include "bench.h"
#include "share.h"

#include <stdio.h>
#include <string.h>

int world_rank, world_ranks;
bool any_wrong;

static const struct test *const tables[] = {pairwise_tests, rma_tests,     collective_tests,
                                          hpcc_tests,     scaling_tests, resource_tests,
                                          first_tests,    file_tests};

const struct test *find_test(const char *name) {
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct test *t = tables[i]; t->name; t++)
            if (!strcmp(t->name, name)) return t;
    return NULL;
}

static void list_tests(void) {
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct test *t = tables[i]; t->name; t++)
            printf("{\"test\":\"%s\",\"operation\":\"%s\",\"of\":\"%s\",\"sizes\":\"%s\"}\n", t->name, t->operation, t->of,
                   t->sizes ? t->sizes : "");
}

static const char *parse_tests(char *text) {
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (options.test_count == TESTS_MAX) return "too many tests";
        if (!find_test(name)) return refuse_option("unknown test", name);
        options.tests[options.test_count++] = name;
    }
    return NULL;
}

static const char *parse_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *wrong = NULL;
        if (!strcmp(argv[i], "--check")) options.check = true;
        else if (!strcmp(argv[i], "--touch")) options.touch = true;
        else if (!strcmp(argv[i], "--list")) options.list = true;
        else if (strncmp(argv[i], "--", 2)) wrong = parse_tests(argv[i]);
        else if (i + 1 == argc) wrong = refuse_option("an option needs a value", argv[i]);
        else wrong = set_option(argv[i], argv[i + 1]), i++;
        if (wrong) return wrong;
    }
    return options.list || options.test_count > 0 ? NULL : "no test given; --list lists all tests";
}

static void run_all(void) {
    start_clock();
    measure_overhead();
    open_share();
    open_wire();
    print_start();
    for (int i = 0; i < options.test_count; i++) expect_test(find_test(options.tests[i]));
    for (int i = 0; i < options.test_count; i++) run_test(find_test(options.tests[i]));
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) print_end();
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
    const char *problem = parse_options(argc, argv);
    if (!problem && options.list) {
        if (world_rank == 0) list_tests();
    } else if (!problem && options.test_count == 1 && !strcmp(options.tests[0], "startup")) {
        MPI_Finalize();
        return 0;
    } else if (!problem) {
        run_all();
    } else if (world_rank == 0) {
        fprintf(stderr, "bench: %s\n", problem);
    }
    int wrong = any_wrong, any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return problem ? 2 : any ? 3 : 0;
}
