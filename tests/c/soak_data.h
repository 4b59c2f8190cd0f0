/* Helpers of the random message and access tests: numbers, sizes, layouts and data. */
#ifndef SOAK_DATA_H
#define SOAK_DATA_H
#include "check.h"

enum { LARGEST = 4 << 20 };

/* Layout of a message: blocks with gaps between them, in ascending or descending order. */
struct layout { int block, gap, falls, counted; };

static unsigned draw(unsigned long long *state, unsigned below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((*state >> 33) % below);
}

static int draw_size(unsigned long long *state)
{
    static const int changes[] = {-65, -64, -16, -2, -1, 0, 1, 2, 8, 64};
    unsigned kind = draw(state, 16);
    unsigned order = kind < 4 ? 6 : kind < 8 ? 13 : kind < 12 ? 16 : kind < 15 ? 19 : 22;
    if (draw(state, 3) == 0) { /* around a power of two */
        int size = (1 << draw(state, order + 1)) + changes[draw(state, 10)];
        return size < 0 ? 0 : size > LARGEST ? LARGEST : size;
    }
    return (int)draw(state, 1u << draw(state, order + 1));
}

static struct layout draw_layout(unsigned long long *state, int bytes)
{
    static const int blocks[] = {1, 3, 8, 24, 64, 1000, 5000, 70000};
    struct layout made = {.block = bytes ? bytes : 1};
    if (bytes > 1 && draw(state, 3) == 0) {
        made.falls = draw(state, 3) == 0;
        made.block = blocks[draw(state, 8)];
        if (made.block < bytes / 500)
            made.block = bytes / 500;
        made.gap = (int)draw(state, 3) * 8 + (int)draw(state, 3);
        made.counted = bytes % made.block == 0;
    }
    return made;
}

static size_t blocks_of(const struct layout *layout, size_t bytes)
{
    return (bytes + (size_t)layout->block - 1) / (size_t)layout->block;
}

/* Extent of the memory from the first to the last byte. */
static size_t span_of(const struct layout *layout, size_t bytes)
{
    return blocks_of(layout, bytes) * (size_t)(layout->block + layout->gap);
}

/* Offset of block `i` of a message with room for `bytes`. */
static size_t place_of(const struct layout *layout, size_t bytes, size_t i)
{
    return (layout->falls ? blocks_of(layout, bytes) - 1 - i : i) * (size_t)(layout->block + layout->gap);
}

static MPI_Datatype type_of(const struct layout *layout, int bytes, int *count)
{
    int full = bytes / layout->block, rest = bytes % layout->block, lengths[2] = {1, rest};
    MPI_Datatype type, part, types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    MPI_Aint places[2] = {0, (MPI_Aint)place_of(layout, (size_t)bytes, (size_t)full)}, step = layout->block + layout->gap;
    *count = 1;
    if (layout->gap == 0 && !layout->falls) {
        *count = bytes;
        return MPI_BYTE;
    }
    if (layout->falls)
        places[0] = (MPI_Aint)place_of(layout, (size_t)bytes, 0);
    if (layout->counted && !layout->falls) {
        OK(MPI_Type_contiguous(layout->block, MPI_BYTE, &part));
        OK(MPI_Type_create_resized(part, 0, step, &type));
        *count = full;
    } else {
        OK(MPI_Type_create_hvector(full, layout->block, layout->falls ? -step : step, MPI_BYTE, &part));
        types[0] = part;
        lengths[0] = full > 0;
        OK(MPI_Type_create_struct(1 + (rest > 0), lengths, places, types, &type));
    }
    OK(MPI_Type_free(&part));
    OK(MPI_Type_commit(&type));
    return type;
}

/* Byte `i` of data `mark`; two marks agree in one byte of 256. */
static unsigned char soak_byte(unsigned mark, size_t i)
{
    return (unsigned char)(((i + mark * 0xd1342543de82ef95ull) * 0x9e3779b97f4a7c15ull) >> 56);
}

static void write_out(unsigned char *data, const struct layout *layout, int bytes, unsigned mark)
{
    unsigned char *one = layout->gap || layout->falls ? allocate((size_t)bytes) : data;
    for (size_t i = 0; i < (size_t)bytes; i++)
        one[i] = soak_byte(mark, i);
    for (size_t i = 0; one != data && i < blocks_of(layout, (size_t)bytes); i++) {
        size_t from = i * (size_t)layout->block, left = (size_t)bytes - from;
        memcpy(data + place_of(layout, (size_t)bytes, i), one + from,
               left < (size_t)layout->block ? left : (size_t)layout->block);
    }
    if (one != data)
        free(one);
}
#endif
