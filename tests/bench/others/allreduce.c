// Measures all-reduce of float32 and barriers of an MPI, for tests/bench.
//
//	mpicc -O2 -o allreduce allreduce.c && mpirun -np 2 ./allreduce in|out ROUNDS BYTES…
//
// Rank 0 prints a line for each size: bytes, and the seconds that a call takes
// at the slowest rank, the median of the rounds. 0 bytes is a barrier. The
// results are checked.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static float value(size_t i, int rank) { return (float)((i * 7 + rank * 13) % 1024); }

static void check(const float *got, size_t count, int ranks) {
	for (size_t i = 0; i < count; i++) {
		float want = 0;
		for (int r = 0; r < ranks; r++) want += value(i, r);
		if (got[i] != want) {
			fprintf(stderr, "element %zu is %g, not %g\n", i, got[i], want);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

int main(int argc, char **argv) {
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 4) return 2;
	int in_place = !strcmp(argv[1], "in"), rounds = atoi(argv[2]);
	double *took = malloc(sizeof *took * rounds);
	for (int a = 3; a < argc; a++) {
		size_t bytes = strtoull(argv[a], NULL, 10), count = bytes / sizeof(float);
		float *in = malloc(bytes + 1), *out = malloc(bytes + 1);
		// A call of some microseconds is too short for the clock.
		int calls = bytes < 65536 ? 200 : 1;
		for (int k = -2; k < rounds; k++) {
			for (size_t i = 0; i < count; i++) in[i] = out[i] = value(i, rank);
			MPI_Barrier(MPI_COMM_WORLD);
			double begin = MPI_Wtime();
			for (int c = 0; c < calls; c++) {
				if (bytes == 0) MPI_Barrier(MPI_COMM_WORLD);
				else MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			}
			double mine = (MPI_Wtime() - begin) / calls, all;
			MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
			if (k >= 0) took[k] = all;
			if (calls == 1 || !in_place) check(out, count, ranks);
		}
		if (rank == 0) {
			qsort(took, rounds, sizeof *took, by_value);
			printf("%zu %.9f\n", bytes, took[rounds / 2]);
		}
		free(in);
		free(out);
	}
	MPI_Finalize();
	return 0;
}
