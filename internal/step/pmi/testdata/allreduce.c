// Sums the ranks plus one. With "abort" the last rank ends the step with 7, with "leave" it exits
// with 5 and without MPI_Finalize.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int rank, size, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (argc > 1 && rank == size - 1) {
    if (!strcmp(argv[1], "abort"))
      MPI_Abort(MPI_COMM_WORLD, 7);
    _exit(5);
  }
  if (argc > 1)
    MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d of %d: sum %d\n", rank, size, sum);
  MPI_Finalize();
  return 0;
}
