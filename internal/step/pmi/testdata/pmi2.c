// Exchanges one value per rank through PMI-2 and prints that of the next rank.
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int rc, const char *call) {
  if (rc != PMI2_SUCCESS) {
    printf("%s: %d\n", call, rc);
    exit(1);
  }
}

int main(void) {
  int spawned, size, rank, appnum, found, length;
  char job[256], key[64], value[1024], mapping[1024];
  check(PMI2_Init(&spawned, &size, &rank, &appnum), "init");
  check(PMI2_Job_GetId(job, sizeof job), "job_getid");
  check(PMI2_Info_GetJobAttr("PMI_process_mapping", mapping, sizeof mapping, &found), "getjobattr");
  snprintf(key, sizeof key, "k%d", rank);
  snprintf(value, sizeof value, "%d;%d=", rank, rank);
  check(PMI2_KVS_Put(key, value), "put");
  check(PMI2_KVS_Fence(), "fence");
  snprintf(key, sizeof key, "k%d", (rank + 1) % size);
  check(PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length), "get");
  printf("rank %d of %d in %s: %s next %s\n", rank, size, job, mapping, value);
  check(PMI2_Finalize(), "finalize");
  return 0;
}
