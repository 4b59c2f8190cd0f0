/* Heat in a square plate: how it spreads from two hot spots while the rim stays cold.
 *
 * The plate is a grid of SIZE x SIZE points. Each rank owns one rectangle of it and, in every step, exchanges its
 * outermost points with up to four neighbours; the new temperature of a point is the mean of the four around it (the
 * explicit method at its largest stable step). The largest change of a step is reduced over all ranks. At the end rank 0
 * computes the whole plate alone and compares: both must agree in every bit.
 *
 * usage: mpiexec -n 4 heat [SIZE [STEPS]]
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { UP, DOWN, LEFT, RIGHT, SIDES };

/* A rectangle of the plate with a border of one point on each side. */
typedef struct {
    int row, column;    /* of its first own point in the plate */
    int rows, columns;  /* own points */
    int pitch;          /* doubles from one row to the next */
    double *now, *next; /* temperatures in this step and the next */
} Block;

static double *at(const Block *b, double *grid, int row, int column)
{
    return grid + (size_t)(row + 1) * b->pitch + column + 1;
}

static void die(const char *why)
{
    fprintf(stderr, "heat: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static Block make_block(int size, int row, int column, int rows, int columns)
{
    Block b = {row, column, rows, columns, columns + 2, NULL, NULL};
    size_t points = (size_t)(rows + 2) * b.pitch;
    b.now = calloc(points, sizeof(double));
    b.next = calloc(points, sizeof(double));
    if (!b.now || !b.next)
        die("not enough memory for the plate");
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double y = (double)(row + i) / size, x = (double)(column + j) / size;
            if (hypot(x - 0.3, y - 0.35) < 0.16 || hypot(x - 0.68, y - 0.62) < 0.22)
                *at(&b, b.now, i, j) = 100.0;
        }
    return b;
}

static void free_block(Block *b)
{
    free(b->now);
    free(b->next);
}

/* Computes one step of the rectangle. Returns the largest change if requested, else 0. */
static double step(Block *b, int want_change)
{
    for (int i = 0; i < b->rows; i++) {
        const double *restrict above = at(b, b->now, i - 1, 0);
        const double *restrict here = at(b, b->now, i, 0);
        const double *restrict below = at(b, b->now, i + 1, 0);
        double *restrict out = at(b, b->next, i, 0);
        for (int j = 0; j < b->columns; j++)
            out[j] = 0.25 * ((above[j] + below[j]) + (here[j - 1] + here[j + 1]));
    }
    double change = 0;
    if (want_change)
        for (int i = 0; i < b->rows; i++)
            for (int j = 0; j < b->columns; j++)
                change = fmax(change, fabs(*at(b, b->next, i, j) - *at(b, b->now, i, j)));
    double *swap = b->now;
    b->now = b->next;
    b->next = swap;
    return change;
}

/* Fills the border with the neighbours' outermost points; at the rim of the plate it stays cold. */
static void exchange(Block *b, const int neighbour[SIDES], MPI_Datatype column, MPI_Comm grid)
{
    MPI_Request request[2 * SIDES];
    double *g = b->now;
    int last_row = b->rows - 1, last_column = b->columns - 1;

    MPI_Irecv(at(b, g, -1, 0), b->columns, MPI_DOUBLE, neighbour[UP], 0, grid, &request[0]);
    MPI_Irecv(at(b, g, b->rows, 0), b->columns, MPI_DOUBLE, neighbour[DOWN], 0, grid, &request[1]);
    MPI_Irecv(at(b, g, 0, -1), 1, column, neighbour[LEFT], 0, grid, &request[2]);
    MPI_Irecv(at(b, g, 0, b->columns), 1, column, neighbour[RIGHT], 0, grid, &request[3]);
    MPI_Isend(at(b, g, 0, 0), b->columns, MPI_DOUBLE, neighbour[UP], 0, grid, &request[4]);
    MPI_Isend(at(b, g, last_row, 0), b->columns, MPI_DOUBLE, neighbour[DOWN], 0, grid, &request[5]);
    MPI_Isend(at(b, g, 0, 0), 1, column, neighbour[LEFT], 0, grid, &request[6]);
    MPI_Isend(at(b, g, 0, last_column), 1, column, neighbour[RIGHT], 0, grid, &request[7]);
    MPI_Waitall(2 * SIDES, request, MPI_STATUSES_IGNORE);
}

static void show_progress(const char *what, int done, int all, double change)
{
    enum { WIDTH = 32 };
    char bar[WIDTH + 1];
    int filled = (int)((long long)WIDTH * done / all);

    if (!isatty(STDERR_FILENO) && done < all)
        return;
    memset(bar, '-', WIDTH);
    memset(bar, '#', filled);
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%-9s [%s] step %d of %d", what, bar, done, all);
    if (change > 0)
        fprintf(stderr, ", largest change %.4f degrees ", change);
    if (done == all)
        fputc('\n', stderr);
    fflush(stderr);
}

static double processor_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Resources of a computation. */
typedef struct {
    double seconds;
    double processors; /* mean number of processors in use; below the number of ranks if other programs ran */
} Spent;

/* Computes with all ranks; the result stays in their blocks. */
static Spent run_together(Block *b, int steps, MPI_Comm grid)
{
    int rank, neighbour[SIDES], report = steps < 100 ? 1 : steps / 100;
    MPI_Datatype column;

    MPI_Comm_rank(grid, &rank);
    MPI_Cart_shift(grid, 0, 1, &neighbour[UP], &neighbour[DOWN]);
    MPI_Cart_shift(grid, 1, 1, &neighbour[LEFT], &neighbour[RIGHT]);
    MPI_Type_vector(b->rows, 1, b->pitch, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);

    MPI_Barrier(grid);
    double start = MPI_Wtime(), used = processor_seconds();
    for (int s = 1; s <= steps; s++) {
        int reporting = s % report == 0 || s == steps;
        exchange(b, neighbour, column, grid);
        double change = step(b, reporting);
        if (reporting) {
            MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, grid);
            if (rank == 0)
                show_progress("together", s, steps, change);
        }
    }
    MPI_Barrier(grid);
    Spent spent = {MPI_Wtime() - start, 0};
    used = (processor_seconds() - used) / spent.seconds;
    MPI_Allreduce(&used, &spent.processors, 1, MPI_DOUBLE, MPI_SUM, grid);
    MPI_Type_free(&column);
    return spent;
}

/* Computes on rank 0 alone, while the other ranks wait. */
static Spent run_alone(Block *whole, int steps)
{
    int report = steps < 100 ? 1 : steps / 100;
    double start = MPI_Wtime(), used = processor_seconds();

    for (int s = 1; s <= steps; s++) {
        double change = step(whole, s % report == 0 || s == steps);
        if (s % report == 0 || s == steps)
            show_progress("one rank", s, steps, change);
    }
    double seconds = MPI_Wtime() - start;
    return (Spent){seconds, (processor_seconds() - used) / seconds};
}

/* Gathers all blocks on rank 0, into a grid with the layout of `whole`. */
static void collect(const Block *b, const Block *whole, double *plate, int ranks, MPI_Comm grid)
{
    int place[4] = {b->row, b->column, b->rows, b->columns}, rank;
    int (*places)[4] = calloc(ranks, sizeof *places);
    MPI_Datatype mine;
    MPI_Request sent;

    if (!places)
        die("not enough memory");
    MPI_Comm_rank(grid, &rank);
    MPI_Gather(place, 4, MPI_INT, places, 4, MPI_INT, 0, grid);
    MPI_Type_vector(b->rows, b->columns, b->pitch, MPI_DOUBLE, &mine);
    MPI_Type_commit(&mine);
    MPI_Isend(at(b, b->now, 0, 0), 1, mine, 0, 1, grid, &sent);
    for (int r = 0; rank == 0 && r < ranks; r++) {
        MPI_Datatype theirs;
        int *p = places[r];
        MPI_Type_vector(p[2], p[3], whole->pitch, MPI_DOUBLE, &theirs);
        MPI_Type_commit(&theirs);
        MPI_Recv(at(whole, plate, p[0], p[1]), 1, theirs, r, 1, grid, MPI_STATUS_IGNORE);
        MPI_Type_free(&theirs);
    }
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Type_free(&mine);
    free(places);
}

static void draw(const Block *whole, double *plate)
{
    static const char shade[] = " .:-=+*#%@";
    enum { LINES = 16, CHARACTERS = 48 };

    for (int i = 0; i < LINES; i++) {
        printf("    ");
        for (int j = 0; j < CHARACTERS; j++) {
            double t = *at(whole, plate, (2 * i + 1) * whole->rows / (2 * LINES),
                           (2 * j + 1) * whole->columns / (2 * CHARACTERS));
            putchar(shade[(int)fmin(9, t / 10)]);
        }
        putchar('\n');
    }
}

/* Number of points in which two plates differ in any bit. */
static long count_differences(const Block *whole, double *plate)
{
    long different = 0;
    for (int i = 0; i < whole->rows; i++)
        for (int j = 0; j < whole->columns; j++)
            different += memcmp(at(whole, plate, i, j), at(whole, whole->now, i, j), sizeof(double)) != 0;
    return different;
}

static int share_start(int size, int parts, int part)
{
    return (int)((long long)size * part / parts);
}

/* Prints the speedup, if each rank had a processor. */
static void compare_times(int ranks, Spent together, Spent alone)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    double wanted = fmin(ranks, processors);

    printf("%d ranks %.2f s, one rank %.2f s: ", ranks, together.seconds, alone.seconds);
    if (together.processors < 0.8 * wanted || alone.processors < 0.8)
        printf("no comparison, the machine is busy:\n%d ranks had %.1f of %.0f processors, one rank had %.1f of 1\n",
               ranks, together.processors, wanted, alone.processors);
    else
        printf("%.2f times as fast\n", alone.seconds / together.seconds);
}

static int check_alone(int size, int steps, int ranks, Spent together, const Block *b, MPI_Comm grid)
{
    Block whole = make_block(size, 0, 0, size, size);
    double *plate = calloc((size_t)(size + 2) * whole.pitch, sizeof(double));
    if (!plate)
        die("not enough memory for the plate");
    collect(b, &whole, plate, ranks, grid);
    Spent alone = run_alone(&whole, steps);
    long different = count_differences(&whole, plate);

    draw(&whole, plate);
    compare_times(ranks, together, alone);
    if (different)
        printf("WRONG: %ld points differ from what one rank computes\n", different);
    else
        printf("checked: all %ld points are what one rank computes, in every bit\n", (long)size * size);
    free(plate);
    free_block(&whole);
    return different != 0;
}

int main(int argc, char **argv)
{
    int ranks, rank, wrong = 0, dims[2] = {0, 0}, periods[2] = {0, 0}, where[2];
    MPI_Comm grid;

    MPI_Init(&argc, &argv);
    int size = argc > 1 ? atoi(argv[1]) : 768, steps = argc > 2 ? atoi(argv[2]) : 4000;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, dims);
    if (size < dims[0] || size < dims[1] || size > 20000 || steps < 1)
        die("usage: heat [SIZE [STEPS]]: SIZE at most 20000 and at least one point a rank, STEPS at least 1");
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, where);

    int row = share_start(size, dims[0], where[0]), column = share_start(size, dims[1], where[1]);
    Block b = make_block(size, row, column, share_start(size, dims[0], where[0] + 1) - row,
                         share_start(size, dims[1], where[1] + 1) - column);
    if (rank == 0)
        printf("heat in a plate of %d x %d points, %d steps, %d x %d ranks\n", size, size, steps, dims[0], dims[1]);
    fflush(stdout);
    Spent together = run_together(&b, steps, grid);
    if (rank == 0)
        wrong = check_alone(size, steps, ranks, together, &b, grid);
    else
        collect(&b, NULL, NULL, ranks, grid);
    MPI_Bcast(&wrong, 1, MPI_INT, 0, grid);
    free_block(&b);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return wrong;
}
