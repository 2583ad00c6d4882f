package jobscript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// parseGPUShare reads "4" and "4:mps".
func parseGPUShare(word string) (cluster.GPUShare, error) {
	count, how, named := strings.Cut(word, ":")
	n, err := parseCount(count, 1)
	if err != nil || !slices.Contains(cluster.GPUShares[:], n) || named && how != "mps" {
		return cluster.GPUShare{}, advise(fmt.Sprintf("invalid value %q", word), "write 2, 4 or 8, the most jobs on the GPU, and add :mps for NVIDIA's MPS, such as 4:mps")
	}
	return cluster.GPUShare{Jobs: n, MPS: named}, nil
}

// refuseShards refuses Slurm's shares of GPUs: their counts per GPU differ from site to site.
func refuseShards(name, word string) error {
	if name != "shard" && name != "mps" {
		return nil
	}
	use := "--gpu-share=4 for up to 4 jobs on a GPU"
	if name == "mps" {
		use = "--gpu-share=4:mps for up to 4 jobs on a GPU with MPS"
	}
	return advise(fmt.Sprintf("%q does not say which part of a GPU it requests", word), "use "+use)
}

// finishGPUShare gives a job that shares its GPU one GPU, if it requests no number.
func (r *resolver) finishGPUShare(o *Options) {
	q := &o.Request
	if !q.Share.On() {
		return
	}
	if q.GPUs == 0 && q.GPUsPerNode == 0 {
		q.GPUsPerNode = 1
	}
	switch {
	case q.TotalGPUs() > 1 || q.Nodes > 1 || q.MaxNodes > 1:
		r.fault("--gpu-share", "a job that shares its GPU has one GPU on one node", "omit --gpu-share, or request --gpus=1 and --nodes=1")
	case q.Exclusive:
		r.fault("--gpu-share", "cannot be combined with --exclusive", "omit one of them")
	case o.Reservation != "":
		r.fault("--gpu-share", "cannot be combined with --reservation", "omit one of them")
	case slices.ContainsFunc(q.GPUTypes, cluster.IsMIGType):
		r.fault("--gpu-share", "a MIG instance cannot be shared", "omit --gpu-share, or name the type of a whole GPU")
	}
}
