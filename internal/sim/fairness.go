package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Fairness compares the use of each user with an entitlement. Each day divides what was used
// equally among the users, no user gets more than the jobs that were there could use, and the rest
// is divided among the others (max-min fairness).
type Fairness struct {
	Users int `json:"users"`
	// EntitlementError is the part of all GPU or CPU time that users beyond their entitlement had:
	// 0 is fair, 1 the opposite.
	EntitlementError float64 `json:"entitlement_error"`
	// Jain is Jain's index of use divided by entitlement: 1 if equal for all users (Jain, Chiu,
	// Hawe, DEC-TR-301, 1984).
	Jain        float64    `json:"jain"`
	WorstUser   Worst      `json:"worst_user"`
	WorstBySize []SizeWait `json:"worst_by_size"`
	// WorstByAccount is empty if the log has no accounts.
	WorstByAccount []AccountWait `json:"worst_by_account,omitempty"`
}

// Worst is the longest wait and its user or account.
type Worst struct {
	User string  `json:"user"`
	Job  string  `json:"job"`
	Wait float64 `json:"wait"`
}

// SizeWait is the waits of jobs of one size class, in seconds.
type SizeWait struct {
	From int64   `json:"from"` // GPUs, or CPUs
	To   int64   `json:"to"`
	Jobs int     `json:"jobs"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// AccountWait is the waits of an account's jobs, in seconds.
type AccountWait struct {
	Account string  `json:"account"`
	Jobs    int     `json:"jobs"`
	Mean    float64 `json:"mean"`
	Max     float64 `json:"max"`
}

// day is the window in which entitlements are computed.
const day = cluster.Instant(24 * time.Hour)

// days holds what each user used and could have used, by day.
type days map[cluster.Instant]map[string]*[2]float64

const used, wanted = 0, 1

func (d days) add(r *Result, from, to cluster.Instant, what int) {
	for from < to {
		w := from / day
		until := min(to, (w+1)*day)
		users := d[w]
		if users == nil {
			users = map[string]*[2]float64{}
			d[w] = users
		}
		u := users[r.Job.Spec.Owner.User]
		if u == nil {
			u = new([2]float64)
			users[r.Job.Spec.Owner.User] = u
		}
		u[what] += float64(r.Job.size()) * until.Sub(from).Seconds()
		from = until
	}
}

// fairness measures an outcome. O(jobs × days of each).
func fairness(o *Outcome) Fairness {
	f := Fairness{}
	all := days{}
	sizes, accounts := map[int64]*SizeWait{}, map[string]*AccountWait{}
	for i := range o.Results {
		r := &o.Results[i]
		if r.Start == 0 || r.End == 0 {
			continue
		}
		wait := r.Start.Sub(r.Job.Submit).Seconds()
		if wait > f.WorstUser.Wait || f.WorstUser.User == "" {
			f.WorstUser = Worst{r.Job.Spec.Owner.User, r.Job.Name, wait}
		}
		s := sizeOf(sizes, r.Job.size())
		s.Jobs, s.Mean, s.Max = s.Jobs+1, s.Mean+wait, max(s.Max, wait)
		if name := r.Job.Spec.Account; name != "" {
			a := accounts[name]
			if a == nil {
				a = &AccountWait{Account: name}
				accounts[name] = a
			}
			a.Jobs, a.Mean, a.Max = a.Jobs+1, a.Mean+wait, max(a.Max, wait)
		}
		all.add(r, r.Start, r.End, used)
		all.add(r, r.Job.Submit, r.End, wanted)
	}
	for _, from := range slices.Sorted(maps.Keys(sizes)) {
		s := *sizes[from]
		s.Mean /= float64(s.Jobs)
		f.WorstBySize = append(f.WorstBySize, s)
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		a := *accounts[name]
		a.Mean /= float64(a.Jobs)
		f.WorstByAccount = append(f.WorstByAccount, a)
	}
	f.compareUsers(all)
	return f
}

// sizeOf returns the class of a size: from a power of two to below the next.
func sizeOf(sizes map[int64]*SizeWait, size int64) *SizeWait {
	from := int64(1)
	for from*2 <= size {
		from *= 2
	}
	s := sizes[from]
	if s == nil {
		s = &SizeWait{From: from, To: 2*from - 1}
		sizes[from] = s
	}
	return s
}

// compareUsers sets the figures about users.
func (f *Fairness) compareUsers(all days) {
	got, due := map[string]float64{}, map[string]float64{}
	total, wrong := 0.0, 0.0
	for _, w := range slices.Sorted(maps.Keys(all)) {
		entitled := entitlements(all[w])
		for _, user := range slices.Sorted(maps.Keys(entitled)) {
			u := all[w][user][used]
			total += u
			wrong += max(0, u-entitled[user])
			got[user] += u
			due[user] += entitled[user]
		}
	}
	f.Users = len(got)
	if total == 0 {
		return
	}
	f.EntitlementError = wrong / total
	sum, squares, n := 0.0, 0.0, 0.0
	for _, user := range slices.Sorted(maps.Keys(got)) {
		if due[user] > 0 {
			x := got[user] / due[user]
			sum, squares, n = sum+x, squares+x*x, n+1
		}
	}
	if squares > 0 {
		f.Jain = sum * sum / (n * squares)
	}
}

// entitlements divides what was used in a window among its users. The user who could use least is
// served first.
func entitlements(users map[string]*[2]float64) map[string]float64 {
	names := slices.Sorted(maps.Keys(users))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(users[a][wanted], users[b][wanted]) })
	left := 0.0
	for _, n := range names {
		left += users[n][used]
	}
	out := make(map[string]float64, len(names))
	for i, n := range names {
		part := min(users[n][wanted], left/float64(len(names)-i))
		out[n] = part
		left -= part
	}
	return out
}
