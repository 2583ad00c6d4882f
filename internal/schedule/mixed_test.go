package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// vary2 gives some sites partitions with limits of their own, which change, nodes that clean up
// slowly, and starts that fail before the next pass.
func (s *site) vary2(seed uint64) {
	s.third = rand.New(rand.NewPCG(seed, 77))
	s.ends = map[cluster.JobID]time.Duration{}
	s.cleans, s.fails = s.third.IntN(3) == 0, s.third.IntN(3) == 0
	if s.third.IntN(2) == 0 {
		return
	}
	nodes := func(step int) (names []string) {
		for i := 0; i < len(s.snap.Nodes); i += step {
			names = append(names, s.snap.Nodes[i].Name)
		}
		return names
	}
	s.policy.Partitions = []cluster.Partition{
		{Name: "main", Nodes: []string{"ALL"}, Default: true},
		{Name: "short", Nodes: nodes(1), MaxTime: time.Duration(30+s.third.IntN(120)) * time.Minute},
		{Name: "few", Nodes: nodes(2), MaxNodes: 1 + s.third.Int32N(2)},
		{Name: "shut", Nodes: nodes(1), Down: s.third.IntN(2) == 0},
	}
}

// place gives a job several partitions in some order. The last one stays.
func (s *site) place(spec *cluster.JobSpec) {
	if len(s.policy.Partitions) < 2 || s.third.IntN(3) == 0 {
		return
	}
	names := []string{"short", "few", "shut"}
	s.third.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = append(names[:1+s.third.IntN(3)], "main")
	if spec.Reservation != "" { // in which all jobs stay as long as it lasts
		names = []string{"main"}
	}
	spec.Partition, spec.OtherPartitions = names[0], names[1:]
}

// refuses returns why a partition does not let a job have some nodes, as the state writes it; ""
// when it does.
func (s *site) refuses(j *cluster.Job, name string, nodes []string) string {
	part, known := s.policy.Partition(name)
	switch {
	case !known || part.Down:
		return "down"
	case !slices.Contains(append([]string{j.Spec.Partition}, j.Spec.OtherPartitions...), name):
		return "not the job's"
	case part.MaxTime > 0 && j.Spec.TimeLimit > part.MaxTime:
		return "time"
	case part.MaxNodes > 0 && len(nodes) > int(part.MaxNodes):
		return "nodes"
	}
	for _, n := range nodes {
		if !slices.Contains(part.Nodes, "ALL") && !slices.Contains(part.Nodes, n) {
			return n + " is not in it"
		}
	}
	return ""
}

// inPartitions checks that no start is decided or planned in a partition that refuses it.
func (s *site) inPartitions(d Decision) {
	for _, x := range d.Plan.Starts {
		i := slices.IndexFunc(s.snap.Pending, func(j *cluster.Job) bool { return j.ID == x.Job })
		var nodes []string
		for _, n := range x.Placement.Nodes {
			nodes = append(nodes, n.Node)
		}
		if why := s.refuses(s.snap.Pending[i], x.Partition, nodes); why != "" {
			s.Fatalf("job %d starts in %s: %s", x.Job, x.Partition, why)
		}
	}
	for _, e := range s.p.schedule.Bookings().Due() {
		var nodes []string
		for _, share := range e.Shares {
			nodes = append(nodes, s.p.schedule.Resources().Hosts[share.Host].Name)
		}
		if why := s.refuses(e.Job, e.Option().Partition, nodes); why != "" {
			s.Fatalf("job %d is planned in %s: %s", e.Job.ID, e.Option().Partition, why)
		}
	}
}

// couldStartIn is couldStart for each partition alone.
func (s *site) couldStartIn(snap *cluster.Snapshot, others []held, e *plan.Entry) bool {
	q := &e.Job.Spec.Request
	for i := range s.policy.Partitions {
		part := &s.policy.Partitions[i]
		if s.refuses(e.Job, part.Name, make([]string, q.Nodes)) != "" && s.refuses(e.Job, part.Name, nil) == "" || s.refuses(e.Job, part.Name, nil) != "" {
			continue
		}
		if part.MaxNodes > 0 && q.Nodes == 0 {
			continue // the oracle does not know totals on a number of nodes
		}
		own := *snap
		own.Nodes = slices.DeleteFunc(slices.Clone(snap.Nodes), func(n *cluster.Node) bool {
			return !slices.Contains(part.Nodes, "ALL") && !slices.Contains(part.Nodes, n.Name)
		})
		if s.couldStart(&own, others, e) {
			return true
		}
	}
	return false
}

// overrule changes what partitions allow.
func (s *site) overrule() {
	if len(s.policy.Partitions) < 2 || s.third.IntN(12) > 0 {
		return
	}
	s.policy.Partitions = slices.Clone(s.policy.Partitions)
	for i := range s.policy.Partitions[1:] {
		part := &s.policy.Partitions[1+i]
		switch {
		case part.MaxTime > 0:
			part.MaxTime = time.Duration(30+s.third.IntN(120)) * time.Minute
		case part.MaxNodes > 0:
			part.MaxNodes = 1 + s.third.Int32N(2)
		default:
			part.Down = !part.Down
		}
	}
	next := s.policy
	s.snap.Policy, s.overruled = &next, true
}

// stays returns how long a job has its nodes from its start on: its run time, or longer while they
// are cleaned.
func (s *site) stays(j *cluster.Job) time.Duration {
	if !s.cleans {
		return s.runs[j.ID]
	}
	if _, known := s.ends[j.ID]; !known {
		s.ends[j.ID] = []time.Duration{0, 9 * time.Second, 20 * time.Second, 3 * time.Minute}[s.third.IntN(4)]
		if s.third.IntN(3) == 0 {
			s.runs[j.ID] = j.Spec.TimeLimit
		}
	}
	return s.runs[j.ID] + s.ends[j.ID]
}

// tidy completes jobs that have ended once their nodes are clean.
func (s *site) tidy() {
	for i, j := range s.snap.Active {
		over := j.Started.Add(s.runs[j.ID])
		if j.State == cluster.Completing || over > s.snap.Now || s.stays(j) == s.runs[j.ID] {
			continue
		}
		job := *j
		job.State, job.Ended = cluster.Completing, over
		var tasks []cluster.Task
		for _, n := range job.Alloc.Nodes {
			tasks = append(tasks, cluster.Task{Node: n.Node, Phase: cluster.TaskEnded})
		}
		job.Tasks = cluster.NewTasks(tasks...)
		s.snap.Active[i] = &job
	}
}

// leavesAt returns when a job with nodes is expected to leave them.
func (s *site) leavesAt(j *cluster.Job) cluster.Instant {
	end := j.Started.Add(j.Spec.TimeLimit + cleanup - slack)
	if j.State == cluster.Completing {
		end = min(end, j.Ended.Add(cleanup))
	}
	switch {
	case end > s.snap.Now:
		return end
	case end.Add(10*time.Second) > s.snap.Now:
		return end.Add(10 * time.Second)
	case j.State == cluster.Completing && j.Ended.Add(cleanup) > s.snap.Now:
		return j.Ended.Add(cleanup)
	}
	return (s.snap.Now/cluster.Instant(time.Minute) + 1) * cluster.Instant(time.Minute)
}

// mayBreak reports whether the cause of a broken promise is true.
func (s *site) mayBreak(why string) bool {
	if s.overruled && (strings.HasPrefix(why, "partition ") || strings.Contains(why, "allows ") || strings.HasPrefix(why, "an administrator")) {
		return true
	}
	for _, j := range s.snap.Active {
		clean := "is still cleaning up after job " + j.Ref().String()
		if strings.HasSuffix(why, clean) && j.State == cluster.Completing && s.leavesAt(j).Sub(s.snap.Now) <= time.Minute {
			return true
		}
	}
	return false
}
