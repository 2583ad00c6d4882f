package cluster

import (
	"cmp"
	"slices"
)

// GPUShare says that a job shares its GPU with other jobs of its user. The zero value is that of a job that has its
// GPUs for itself.
type GPUShare struct {
	Jobs int32 // the most jobs on the GPU, itself included; 0: it shares none
	MPS  bool  // their programs run at the same time, under NVIDIA's MPS; else in turn, in time slices
}

// MaxGPUShare is the largest number of jobs that may share a GPU.
const MaxGPUShare = 8

// GPUShares are the numbers of jobs that may share a GPU.
var GPUShares = [...]int32{2, 4, MaxGPUShare}

// On reports whether the job shares its GPU.
func (s GPUShare) On() bool { return s.Jobs > 0 }

// Sharers identifies the jobs that may share a GPU with each other.
type Sharers struct {
	User, Account string
	GPUShare
}

// Sharers returns with which jobs a job may share its GPU; false if it shares none.
func (s *JobSpec) Sharers() (Sharers, bool) {
	return Sharers{s.Owner.User, s.Account, s.Request.Share}, s.Request.Share.On()
}

// SharedGPU is a GPU of a node that jobs share.
type SharedGPU struct {
	GPU  int32
	Jobs int32 // that have it now
	By   Sharers
}

// SharedGPU returns a shared GPU of the node; nil if no job shares it. O(log shared GPUs).
func (u *NodeUse) SharedGPU(gpu int32) *SharedGPU {
	i, found := slices.BinarySearchFunc(u.Shared, gpu, func(s SharedGPU, gpu int32) int { return cmp.Compare(s.GPU, gpu) })
	if !found {
		return nil
	}
	return &u.Shared[i]
}

// CountSharer adds a job to those that share a GPU, or with sign -1 removes it, in a copy of the shared GPUs.
func (u *NodeUse) CountSharer(gpu int32, by Sharers, sign int32) {
	u.Shared = slices.Clone(u.Shared)
	i, found := slices.BinarySearchFunc(u.Shared, gpu, func(s SharedGPU, gpu int32) int { return cmp.Compare(s.GPU, gpu) })
	if !found {
		u.Shared = slices.Insert(u.Shared, i, SharedGPU{GPU: gpu, By: by})
	}
	if u.Shared[i].Jobs += sign; u.Shared[i].Jobs <= 0 {
		u.Shared = slices.Delete(u.Shared, i, i+1)
	}
}

// Admits reports whether a job of these sharers may use a GPU that is allocated: it is shared by jobs like it, and
// has a place for another.
func (s *SharedGPU) Admits(by Sharers) bool {
	return s != nil && s.By == by && s.Jobs < by.GPUShare.Jobs
}

// normaliseShare puts the GPU of a job that shares it, and its tasks, on one node.
func (r *Request) normaliseShare() {
	if !r.Share.On() || r.Nodes > 1 || r.GPUs > 1 {
		return
	}
	if r.Nodes = 1; r.GPUs == 1 {
		r.GPUs, r.GPUsPerNode = 0, 1
	}
	if r.Tasks > 0 {
		r.TasksPerNode, r.Tasks = r.Tasks, 0
	}
}

// IsMIGType reports whether a requested GPU type is a MIG profile, or any of them.
func IsMIGType(gpuType string) bool { return gpuType == "mig" || IsMIGProfile(gpuType) }

// checkShare checks the options of a job that shares its GPU.
func (s *JobSpec) checkShare(fault func(string, ...any)) {
	r := &s.Request
	switch {
	case r.Share.Jobs < 0:
		fault("%d jobs cannot share a GPU", r.Share.Jobs)
	case !r.Share.On() && r.Share.MPS:
		fault("MPS is only for jobs that share their GPU")
	case !r.Share.On():
	case !slices.Contains(GPUShares[:], r.Share.Jobs):
		fault("%d jobs cannot share a GPU, want 2, 4 or 8", r.Share.Jobs)
	case r.Nodes != 1 || r.MaxNodes > 1 || r.Tasks > 0 || r.TotalGPUs() != 1:
		fault("a job that shares its GPU has one GPU on one node")
	case r.Exclusive:
		fault("a job cannot share its GPU and have its node for itself")
	case s.Reservation != "":
		fault("a job cannot share its GPU in a reservation")
	case slices.ContainsFunc(r.GPUTypes, IsMIGType):
		fault("a MIG instance cannot be shared")
	}
}
