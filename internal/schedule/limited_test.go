package schedule

import (
	"github.com/greylag/greylag/pkg/cluster"
)

// limitsOfSite is what the QOS of a site's jobs allows at once; 0 for no limit.
type limitsOfSite struct{ gpus, jobs int64 }

// limit gives some sites limits: on the GPUs of all jobs, and on the jobs of each user.
func (s *site) limit() {
	if s.r.IntN(2) == 0 {
		return
	}
	s.most = limitsOfSite{gpus: s.r.Int64N(9), jobs: s.r.Int64N(5)}
	var limits []cluster.Limit
	if s.most.gpus > 0 {
		limits = append(limits, cluster.Limit{Kind: cluster.GrpTRES, Resource: cluster.ResourceGPU, Value: s.most.gpus})
	}
	if s.most.jobs > 0 {
		limits = append(limits, cluster.Limit{Kind: cluster.MaxJobsPerUser, Value: s.most.jobs})
	}
	for i := range s.policy.QOS {
		if s.policy.QOS[i].Name == "standard" {
			s.policy.QOS[i].Limits = cluster.SortLimits(limits)
		}
	}
	s.snap.Accounts = &cluster.AccountView{
		Used:    func(func(*cluster.AccountUsage) bool) {},
		Usage:   func(cluster.AssociationKey) *cluster.AccountUsage { return nil },
		Running: s.running,
	}
}

// running yields what limits count.
func (s *site) running(yield func(cluster.JobID, *cluster.Charge) bool) {
	for _, j := range s.snap.Active {
		gpus := cluster.Amount{Resource: cluster.ResourceGPU, Count: int64(j.Spec.Request.TotalGPUs())}
		c := cluster.Charge{AssociationKey: j.Spec.Association(), QOS: j.Spec.QOS, Amounts: []cluster.Amount{gpus}}
		if !yield(j.ID, &c) {
			return
		}
	}
}

// within checks that what runs and what is promised stays within the limits together.
func (s *site) within() {
	gpus, jobs := int64(0), map[string]int64{}
	add := func(j *cluster.Job) {
		gpus += int64(j.Spec.Request.TotalGPUs())
		jobs[j.Spec.Owner.User]++
	}
	for _, j := range s.snap.Active {
		add(j)
	}
	for _, j := range s.snap.Pending {
		if j.Promise != nil {
			add(j)
		}
	}
	if s.most.gpus > 0 && gpus > s.most.gpus {
		s.Fatalf("%d GPUs are in use or promised; %d may be", gpus, s.most.gpus)
	}
	for user, n := range jobs {
		if s.most.jobs > 0 && n > s.most.jobs {
			s.Fatalf("%d jobs of %s run or are promised; %d may", n, user, s.most.jobs)
		}
	}
}
