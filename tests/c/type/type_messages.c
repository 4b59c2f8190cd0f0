/* Messages with derived types, sent with one layout and received with another. Rank r sends to itself and to the
 * next rank; any number of ranks, small and large messages. */
#include "../check.h"

/* Element i of the data that rank r sends. */
static int value_of(int r, int i)
{
    return r * 1000003 + i * 7;
}

/* Sends `count` ints at a stride of 3, receives them at a stride of 2, to and from the neighbours at `distance`. */
static void exchange_strided(int count, int distance)
{
    MPI_Datatype sent, received;
    int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks, i, n;
    int *out = malloc(sizeof(int) * 3 * (size_t)count), *in = malloc(sizeof(int) * 2 * (size_t)count);
    MPI_Status status;
    MPI_Type_vector(count, 1, 3, MPI_INT, &sent);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &received);
    MPI_Type_commit(&sent);
    MPI_Type_commit(&received);
    for (i = 0; i < 3 * count; i++)
        out[i] = i % 3 == 0 ? value_of(rank, i / 3) : -1;
    for (i = 0; i < 2 * count; i++)
        in[i] = -2;
    MPI_Request request;
    MPI_Irecv(in, count, received, from, 5, MPI_COMM_WORLD, &request);
    MPI_Send(out, 1, sent, to, 5, MPI_COMM_WORLD);
    /* The types are freed while the receive is outstanding, and must stay valid for it. */
    MPI_Type_free(&received);
    MPI_Type_free(&sent);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &n);
    CHECK(n == count);
    for (i = 0; i < count; i++) {
        if (in[2 * i] != value_of(from, i) || in[2 * i + 1] != -2) {
            fprintf(stderr, "rank %d: %d ints at distance %d: wrong at %d\n", rank, count, distance, i);
            failures++;
            break;
        }
    }
    free(in);
    free(out);
}

/* A message that ends within an element of the receiver's type. */
static void receive_part(void)
{
    MPI_Datatype t;
    MPI_Aint at[] = {0, 8};
    MPI_Datatype parts[] = {MPI_INT, MPI_DOUBLE};
    int lengths[] = {1, 2}, n;
    struct {
        int i;
        double d[2];
    } in[4];
    MPI_Status status;
    MPI_Request request;
    MPI_Type_create_struct(2, lengths, at, parts, &t);
    MPI_Type_commit(&t);
    memset(in, 0, sizeof in);
    char packed[32];
    int whole[] = {11, 22}, position = 0;
    double doubles[] = {0.5, 1.5, 2.5};
    MPI_Pack(&whole[0], 1, MPI_INT, packed, sizeof packed, &position, MPI_COMM_SELF);
    MPI_Pack(doubles, 2, MPI_DOUBLE, packed, sizeof packed, &position, MPI_COMM_SELF);
    MPI_Pack(&whole[1], 1, MPI_INT, packed, sizeof packed, &position, MPI_COMM_SELF);
    MPI_Pack(&doubles[2], 1, MPI_DOUBLE, packed, sizeof packed, &position, MPI_COMM_SELF);
    CHECK(position == 32);
    MPI_Irecv(in, 4, t, 0, 1, MPI_COMM_SELF, &request);
    MPI_Send(packed, position, MPI_PACKED, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, t, &n);
    CHECK(n == MPI_UNDEFINED);
    MPI_Get_elements(&status, t, &n);
    CHECK(n == 5);
    CHECK(in[0].i == 11 && in[0].d[0] == 0.5 && in[0].d[1] == 1.5 && in[1].i == 22 && in[1].d[0] == 2.5);
    CHECK(in[1].d[1] == 0 && in[2].i == 0);
    MPI_Type_free(&t);
}

/* Absolute addresses and MPI_BOTTOM. */
static void send_from_bottom(void)
{
    MPI_Datatype t;
    int a = 41, lengths[] = {1, 1};
    double b = 4.25, in_b = 0;
    struct {
        int a;
        double b;
    } in = {0, 0};
    MPI_Aint at[2], in_at[2];
    MPI_Datatype parts[] = {MPI_INT, MPI_DOUBLE}, u;
    MPI_Get_address(&a, &at[0]);
    MPI_Get_address(&b, &at[1]);
    MPI_Get_address(&in.a, &in_at[0]);
    MPI_Get_address(&in.b, &in_at[1]);
    MPI_Type_create_struct(2, lengths, at, parts, &t);
    MPI_Type_create_struct(2, lengths, in_at, parts, &u);
    MPI_Type_commit(&t);
    MPI_Type_commit(&u);
    MPI_Sendrecv(MPI_BOTTOM, 1, t, 0, 2, MPI_BOTTOM, 1, u, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    in_b = in.b;
    CHECK(in.a == 41 && in_b == 4.25);
    MPI_Type_free(&t);
    MPI_Type_free(&u);
}

/* Absolute addresses of contiguous data: the layout is one block of memory. */
static void move_from_bottom(void)
{
    enum { N = 3000 };
    static int out[N], in[N];
    static const int lengths[] = {1, 16, N};
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        MPI_Datatype t, u;
        MPI_Aint at, in_at;
        MPI_Request request;
        int length = lengths[k], size, position = 0, i;
        char packed[N * sizeof(int)];
        for (i = 0; i < N; i++) {
            out[i] = value_of(rank, i);
            in[i] = -1;
        }
        MPI_Get_address(out, &at);
        MPI_Get_address(in, &in_at);
        MPI_Type_create_hindexed(1, &length, &at, MPI_INT, &t);
        MPI_Type_create_hindexed(1, &length, &in_at, MPI_INT, &u);
        MPI_Type_commit(&t);
        MPI_Type_commit(&u);
        MPI_Irecv(MPI_BOTTOM, 1, u, from, 3, MPI_COMM_WORLD, &request);
        MPI_Send(MPI_BOTTOM, 1, t, to, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(in[0] == value_of(from, 0) && in[length - 1] == value_of(from, length - 1));
        CHECK(length == N || in[length] == -1);
        MPI_Bcast(MPI_BOTTOM, 1, rank == 0 ? t : u, 0, MPI_COMM_WORLD);
        CHECK(rank == 0 || (in[0] == value_of(0, 0) && in[length - 1] == value_of(0, length - 1)));
            MPI_Pack_size(1, t, MPI_COMM_WORLD, &size);
        MPI_Pack(MPI_BOTTOM, 1, t, packed, size, &position, MPI_COMM_WORLD);
        CHECK(position == length * (int)sizeof(int) && memcmp(packed, out, (size_t)position) == 0);
        MPI_Type_free(&t);
        MPI_Type_free(&u);
    }
}

/* A column of a matrix becomes a row, in one collective call. */
static void broadcast_column(void)
{
    enum { N = 64 };
    static double matrix[N][N];
    double row[N];
    MPI_Datatype column;
    int i, j;
    MPI_Type_vector(N, 1, N, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++)
            matrix[i][j] = rank == 0 ? i * 100 + j : -1;
    if (rank == 0)
        MPI_Bcast(&matrix[0][3], 1, column, 0, MPI_COMM_WORLD);
    else
        MPI_Bcast(row, N, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (i = 0; rank != 0 && i < N; i++)
        CHECK(row[i] == i * 100 + 3);
    MPI_Type_free(&column);
}

int main(int argc, char **argv)
{
    static const int counts[] = {1, 2, 7, 16, 100, 1000, 5000, 70000, 1000000};
    start(&argc, &argv);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        exchange_strided(counts[i], 0);
        exchange_strided(counts[i], 1 % ranks);
    }
    receive_part();
    send_from_bottom();
    move_from_bottom();
    broadcast_column();
    return finish();
}
