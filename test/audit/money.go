package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/sim/journalcheck"
	"github.com/greylag/greylag/internal/wire"
	clusters "github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/cluster"
)

// Paid records the answers to clients about credits. It may be used by many goroutines. Every grant
// and every refund has a unique amount.
type Paid struct {
	mu       sync.Mutex
	changes  map[int64]bool   // by amount; true: acknowledged, false: unknown
	setAside map[uint64]int64 // by job
}

// NewPaid returns an empty record.
func NewPaid() *Paid { return &Paid{changes: map[int64]bool{}, setAside: map[uint64]int64{}} }

// Changed records a grant or a refund, and whether it was acknowledged.
func (p *Paid) Changed(amount int64, acknowledged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes[amount] = acknowledged
}

// SetAside records the lien in a submission's answer.
func (p *Paid) SetAside(job uint64, amount int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setAside[job] = amount
}

// Count returns the number of recorded answers.
func (p *Paid) Count() (changes, submissions int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.changes), len(p.setAside)
}

// Money compares the promises about credits, and the jobs' run times, with the journal of every
// controller, and that with the balances. It adds everything up by itself.
type Money struct {
	Cluster *cluster.Cluster
	Paid    *Paid // nil: nothing was promised
	Price   int64 // of a GPU-hour of any type, at all times
	// Excused is the largest refund of an attempt that a fault ended.
	Excused time.Duration
	// Amended are jobs whose bills were changed after their end, which their records do not show,
	// with the part of their GPU time that is not proven.
	Amended map[uint64]time.Duration
}

// Check returns all violations. The cluster must be idle meanwhile.
func (m Money) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	read, balances, err := m.Book(ctx)
	if err != nil {
		return err
	}
	jobs, err := m.history(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		named("balances", balanced(read, balances)),
		named("bills", m.bills(read, jobs)),
		named("promises about credits", m.promises(read)),
	)
}

// Book reads the journals of all running controllers, which must be equal and as complete as the
// balances; those of a controller that has just started may need a moment.
func (m Money) Book(ctx context.Context) (read *journalcheck.Book, balances *greylagv1.ListBalancesResponse, err error) {
	leader, err := m.Cluster.Leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	err = cluster.Until(ctx, "all journals are whole", func() (bool, error) {
		balances, err = m.Cluster.Controller(leader).Credits().ListBalances(ctx, &greylagv1.ListBalancesRequest{Buckets: true})
		if err != nil {
			return false, err
		}
		var first [][]byte
		for _, ctl := range m.Cluster.Controllers() {
			if !ctl.Running() {
				continue
			}
			rows, err := m.Cluster.CreditRows(ctx, ctl)
			switch {
			case err != nil:
				return false, err
			case uint64(len(rows)) != balances.Entries:
				return false, fmt.Errorf("%s has %d entries, the balances are as of %d", ctl.Name, len(rows), balances.Entries)
			case first == nil:
				first = rows
			case !slices.EqualFunc(first, rows, bytes.Equal):
				return true, fmt.Errorf("the journal of %s is another one", ctl.Name)
			}
		}
		read, err = journalcheck.Read(first)
		return true, err
	})
	if err == nil && read == nil {
		err = errors.New("the controllers' journals differ, or cannot be read")
	}
	return read, balances, err
}

// history returns all jobs with the bills of their attempts, from the leader.
func (m Money) history(ctx context.Context) (jobs []*greylagv1.PastJob, err error) {
	c, err := m.Cluster.Client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stream, err := c.History().StreamHistory(ctx, &greylagv1.StreamHistoryRequest{})
	if err != nil {
		return nil, err
	}
	for stream.Receive() {
		jobs = append(jobs, stream.Msg().Jobs...)
	}
	return jobs, errors.Join(stream.Err(), stream.Close())
}

// balanced compares the journal's sums with what the cluster reports.
func balanced(b *journalcheck.Book, answers *greylagv1.ListBalancesResponse) error {
	var found []string
	if sum := b.Total(); sum != 0 {
		found = append(found, fmt.Sprintf("all accounts together have %d", sum))
	}
	parents, buckets := map[string]string{}, map[uint64]bool{}
	for _, x := range answers.Balances {
		parents[payerName(x)] = x.Parent
		for _, bucket := range x.Buckets {
			buckets[bucket.Id] = true
			says := journalcheck.BucketSums{Amount: bucket.Amount, Available: bucket.Available, Held: bucket.Held, Spent: bucket.Spent, Expired: bucket.Expired, Void: bucket.Voided}
			if is := b.Buckets[bucket.Id]; is == nil || *is != says {
				found = append(found, fmt.Sprintf("bucket %d has %+v, it is said %+v", bucket.Id, is, says))
			}
		}
	}
	if len(buckets) != len(b.Buckets) {
		found = append(found, fmt.Sprintf("%d buckets were granted, %d are answers of", len(b.Buckets), len(buckets)))
	}
	found = append(found, b.Chains(parents)...)
	total := b.RollUp(parents)
	for _, x := range answers.Balances {
		if is, says := total[payerName(x)], (journalcheck.PayerSums{Held: x.Held, Spent: x.Spent, Debt: x.Debt}); is != says {
			found = append(found, fmt.Sprintf("%s has %+v, it is said %+v", payerName(x), is, says))
		}
	}
	return first(found)
}

func payerName(x *greylagv1.Balance) string {
	if x.User == "" {
		return x.Account
	}
	return x.Account + "/" + x.User
}

// bills checks that every attempt was charged once for the time that it had its GPUs, that nothing
// is held for an ended job, and that every job has a lien and every lien a job.
func (m Money) bills(b *journalcheck.Book, jobs []*greylagv1.PastJob) error {
	found := b.Priced(m.Price)
	known := map[uint64]bool{}
	for _, past := range jobs {
		job := past.Job
		known[job.Id] = true
		if job.Request.GetGpus() == 0 && job.Request.GetGpusPerNode() == 0 {
			continue
		}
		found = append(found, m.bill(b, job)...)
		for _, a := range past.Attempts {
			ran := a.Ended.AsTime().Sub(a.Started.AsTime())
			least, most := saved(job, a.Attempt, a.Started.AsTime(), ran)
			is := b.Bills[journalcheck.Attempt{Job: job.Id, Number: uint64(a.Attempt)}].Charged()
			want := m.due(wire.Word(a.Outcome), gpusOf(a.Tres), ran, most)
			if is > want || is < m.due(wire.Word(a.Outcome), gpusOf(a.Tres), ran, least) && a.Outcome != greylagv1.JobState_JOB_STATE_NODE_FAIL { // only that much is proven
				found = append(found, fmt.Sprintf("job %d, attempt %d, %s: it was charged %d and came to %d", job.Id, a.Attempt, wire.Word(a.Outcome), is, want))
			}
		}
	}
	for of := range b.Bills {
		if !known[of.Job] {
			found = append(found, fmt.Sprintf("credits are set aside for job %d, which is not there", of.Job))
		}
	}
	return first(found)
}

func (m Money) bill(b *journalcheck.Book, job *greylagv1.Job) (found []string) {
	fault := func(format string, args ...any) {
		found = append(found, fmt.Sprintf("job %d, %s, attempt %d: ", job.Id, wire.Word(job.State), job.Attempt)+fmt.Sprintf(format, args...))
	}
	state, err := clusters.ParseJobState(wire.Word(job.State))
	if err != nil {
		fault("%v", err)
	}
	unproven, amended := m.Amended[job.Id]
	charged := int64(0)
	for of, bill := range b.Bills {
		if of.Job != job.Id {
			continue
		}
		open := !state.Final() && (of.Number == uint64(job.Attempt) && state.HasAllocation() || of.Number == uint64(job.Attempt)+1 && state == clusters.Pending)
		if open != (bill.Holds() > 0) {
			fault("attempt %d holds %d", of.Number, bill.Holds())
		}
		charged += bill.Charged()
	}
	if b.Bills[journalcheck.Attempt{Job: job.Id, Number: 1}] == nil && job.Hold != greylagv1.Hold_HOLD_CREDITS {
		fault("nothing was set aside for it")
	}
	if state.Final() && charged != job.Charged && !amended {
		fault("it was charged %d, its record says %d", charged, job.Charged)
	}
	if state.Final() && job.Started != nil {
		if is, want := b.Bills[journalcheck.Attempt{Job: job.Id, Number: uint64(job.Attempt)}].Charged(), m.Due(job, 0); is > want || is < m.Due(job, max(unproven, unheard(job))) {
			fault("it was charged %d for its last attempt, which came to %d", is, want)
		}
	}
	return found
}

// unheard is how late the log may have learned the end of a job's script. Beyond a minute, the
// node's counters are charged: nothing for a script that never began.
func unheard(job *greylagv1.Job) time.Duration {
	counted, began := time.Duration(0), false
	for i, task := range job.Tasks {
		if (i == 0 || job.EveryNode) && task.Started != nil {
			began = true
			if task.Ended != nil {
				counted = max(counted, task.Ended.AsTime().Sub(task.Started.AsTime()))
			}
		}
	}
	if late := job.Ended.AsTime().Sub(job.Started.AsTime()) - counted; (counted > 0 || !began) && late > time.Minute {
		return late
	}
	return 0
}

// Due returns the cost of the last attempt of an ended job, less some time.
func (m Money) Due(job *greylagv1.Job, less time.Duration) int64 {
	gpus := int64(0)
	for _, node := range job.Nodes {
		gpus += int64(len(node.Gpus))
	}
	ran := max(0, job.Ended.AsTime().Sub(job.Started.AsTime())-less)
	least, most := saved(job, job.Attempt, job.Started.AsTime(), ran)
	if less > 0 {
		most = least
	}
	return m.due(wire.Word(job.State), gpus, ran, most)
}

// saved returns how much of an attempt's time its newest good checkpoint saved, of the records that are kept: at least
// and at most.
func saved(job *greylagv1.Job, attempt uint32, started time.Time, ran time.Duration) (least, most time.Duration) {
	for _, k := range job.Checkpoints {
		if most = ran; k.Attempt == attempt && wire.Word(k.State) != "DAMAGED" {
			least = min(ran, max(0, k.Committed.AsTime().Sub(started)))
		}
	}
	if least > 0 {
		most = least
	}
	return least, most
}

// due returns the cost of an attempt some of whose time a checkpoint saved.
func (m Money) due(outcome string, gpus int64, ran, saved time.Duration) int64 {
	due := journalcheck.Cost(m.Price, gpus*ran.Milliseconds())
	if outcome == "NODE_FAIL" || outcome == "PREEMPTED" {
		due -= min(due, journalcheck.Cost(m.Price, gpus*min(ran-saved, m.Excused).Milliseconds()))
	}
	return due
}

// gpusOf returns the number of GPUs among resources.
func gpusOf(tres []*greylagv1.ResourceCount) int64 {
	for _, x := range tres {
		if x.Resource == "gpu" {
			return x.Count
		}
	}
	return 0
}

// promises checks that every acknowledged grant and refund was made once, and that promised liens
// exist.
func (m Money) promises(b *journalcheck.Book) error {
	if m.Paid == nil {
		return nil
	}
	m.Paid.mu.Lock()
	defer m.Paid.mu.Unlock()
	var found []string
	booked := b.Changes()
	for _, amount := range slices.Sorted(maps.Keys(m.Paid.changes)) {
		if n := booked[amount]; n > 1 || n == 0 && m.Paid.changes[amount] {
			found = append(found, fmt.Sprintf("%d was granted or refunded %d times, acknowledged: %t", amount, n, m.Paid.changes[amount]))
		}
	}
	for job, amount := range m.Paid.setAside {
		if bill := b.Bills[journalcheck.Attempt{Job: job, Number: 1}]; bill == nil || bill.Placed < amount {
			found = append(found, fmt.Sprintf("%d was said to be set aside for job %d: %+v", amount, job, bill))
		}
	}
	return first(found)
}
