package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// price is the price of a GPU hour: a micro-credit or two each millisecond, so that every error
// shows.
const price = 7_234_567

// bank is a site that charges for jobs.
type bank struct {
	*site
	paid *audit.Paid
}

// newBank returns a cluster that charges everywhere, with an account that has credits. Work that a
// fault destroyed is not refunded. rules are put before its policy's tables.
func newBank(t testing.TB, options cluster.Options, rules string) *bank {
	t.Helper()
	if options.Policy == "" {
		options.Policy = quickKill()
	}
	options.Policy += rules + "\n[credits]\nenabled = true\nfault_refund = \"0s\"\n"
	b := &bank{newSite(t, options), audit.NewPaid()}
	ctx := limited(t, 4*hang)
	self, err := user.Current()
	b.must(err)
	_, err = b.client.Accounts().ImportAccounts(ctx, &greylagv1.ImportAccountsRequest{Toml: fmt.Sprintf(
		"[[account]]\nname = 'uni'\n\n[[account]]\nname = 'ml'\nparent = 'uni'\n\n[[user]]\nname = %q\naccount = 'ml'\ndefault = true\n", self.Username)})
	b.must(err)
	b.must(b.change(ctx, &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_SetPrice{SetPrice: &greylagv1.SetPrice{GpuType: "h100", Price: price}}}))
	b.grant(ctx, "ml", 10_000_000_000)
	return b
}

func (b *bank) change(ctx context.Context, x *greylagv1.ChangeCreditsRequest) error {
	if x.RequestId == "" {
		x.RequestId = client.NewRequestID()
	}
	_, err := b.client.Credits().ChangeCredits(ctx, x)
	return err
}

func grantRequest(x *greylagv1.GrantCredits) *greylagv1.ChangeCreditsRequest {
	return &greylagv1.ChangeCreditsRequest{Change: &greylagv1.ChangeCreditsRequest_Grant{Grant: x}}
}

func (b *bank) grant(ctx context.Context, account string, amount int64) {
	b.t.Helper()
	b.must(b.change(ctx, grantRequest(&greylagv1.GrantCredits{Account: account, Class: greylagv1.BucketClass_BUCKET_CLASS_PURCHASE, Amount: amount})))
	b.paid.Changed(amount, true)
}

// gpuJob returns a job with a GPU that records its run.
func (b *bank) gpuJob(name, body string) *greylagv1.JobSpec {
	job := b.job(name, body)
	job.Request.Gpus, job.TimeLimit = 1, durationpb.New(10*time.Minute)
	return job
}

// spend submits a job and records its lien.
func (b *bank) spend(ctx context.Context, job *greylagv1.JobSpec) (uint64, error) {
	answer, err := audit.Spread{Cluster: b.Cluster}.SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: job.Name, Jobs: []*greylagv1.JobSpec{job}})
	if err != nil {
		b.answers.Unknown(job.Name)
		return 0, err
	}
	id := answer.Jobs[0].Id
	b.answers.Acknowledged(job.Name, id)
	b.paid.SetAside(id, answer.Lien)
	return id, nil
}

// account checks the books to the micro-credit, on every controller.
func (b *bank) account(ctx context.Context) {
	b.t.Helper()
	if err := (audit.Money{Cluster: b.Cluster, Paid: b.paid, Price: price}).Check(ctx); err != nil {
		b.t.Error(err)
	}
	b.verified(ctx)
	b.audit(ctx)
}

// verified checks that gctl verify finds every controller intact.
func (b *bank) verified(ctx context.Context) {
	b.t.Helper()
	b.must(cluster.Until(ctx, "gctl verify says the same everywhere", func() (bool, error) {
		answers := map[string]bool{}
		for _, ctl := range b.Controllers() {
			result, err := b.RunAt(ctx, ctl, "gctl", "verify", "--json")
			if err != nil || result.Exit != 0 || !strings.Contains(result.Stdout, `"name": "credits"`) {
				return true, fmt.Errorf("%s: exit status %d: %s%s: %w", ctl.Name, result.Exit, result.Stdout, result.Stderr, err)
			}
			mine := fmt.Sprintf("%q: %q", "controller", ctl.Name)
			if !strings.Contains(result.Stdout, mine) {
				return true, fmt.Errorf("%s answers for another: %s", ctl.Name, result.Stdout)
			}
			answers[strings.ReplaceAll(result.Stdout, mine, "")] = true
		}
		return len(answers) == 1, fmt.Errorf("%v", answers)
	}))
}

// customers is how many clients spend at a time.
const customers = 12

// busy lets customers submit, cancel, change and refund jobs and grant credits until the returned
// function is called, which waits for the remaining answers.
func (b *bank) busy() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	var serial, refused atomic.Int64
	for i := range customers {
		all.Go(func() {
			c := &customer{bank: b, random: rand.New(rand.NewPCG(uint64(i), 9)), serial: &serial}
			for ctx.Err() == nil {
				if err := c.act(context.WithoutCancel(ctx)); err != nil {
					refused.Add(1)
					b.t.Log("a customer:", err)
				}
			}
		})
	}
	b.until("customers are served", func() (bool, error) {
		_, n := b.paid.Count()
		return n > 2*customers, fmt.Errorf("%d submissions", n)
	})
	return func() {
		b.t.Helper()
		cancel()
		all.Wait()
		changes, submissions := b.paid.Count()
		b.t.Logf("%d jobs were paid for, %d grants and refunds, %d refusals, longest gap %s", submissions, changes, refused.Load(), b.answers.LongestGap().Round(time.Millisecond))
	}
}

// customer is one client: it holds pending jobs and remembers those that ran.
type customer struct {
	*bank
	random       *rand.Rand
	serial       *atomic.Int64
	waiting, ran []uint64
}

// act makes one request, repeated until its outcome is known.
func (c *customer) act(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	n := c.serial.Add(1)
	switch choice := c.random.IntN(20); {
	case choice < 6 && len(c.ran) < 5:
		id, err := c.spend(ctx, c.gpuJob(fmt.Sprintf("runs-%d", n), "exit 0"))
		c.ran = append(c.ran, id)
		return err
	case choice < 12:
		job := c.gpuJob(fmt.Sprintf("waits-%d", n), "exit 0")
		job.Hold, job.Request.Gpus, job.Qos = true, int32(1+c.random.IntN(3)), "standard"
		id, err := c.spend(ctx, job)
		c.waiting = append(c.waiting, id)
		return err
	case choice < 15 && len(c.waiting) > 0:
		id := c.waiting[0]
		c.waiting = c.waiting[1:]
		_, err := c.client.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{ref(id)}}})
		return err
	case choice < 17 && len(c.waiting) > 0:
		_, err := c.client.Jobs().UpdateJobs(ctx, &greylagv1.UpdateJobsRequest{
			RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{ref(c.waiting[0])}}, Action: greylagv1.JobAction_JOB_ACTION_SET,
			TimeLimit: durationpb.New(time.Duration(10+c.random.IntN(50)) * time.Minute),
		})
		return err
	}
	amount := 1_000_000 + n
	err := c.change(ctx, grantRequest(&greylagv1.GrantCredits{Account: "ml", Class: greylagv1.BucketClass_BUCKET_CLASS_PURCHASE, Amount: amount}))
	c.paid.Changed(amount, err == nil)
	return err
}

// twoNodes returns three controllers and two nodes.
func twoNodes() cluster.Options {
	options := three()
	options.Nodes, options.GPUs = 2, 8
	return options
}

// TestCreditsLeaderKilled kills the leader with SIGKILL repeatedly while jobs are charged. Not one
// micro-credit is lost or doubled.
func TestCreditsLeaderKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	b := newBank(t, twoNodes(), "")
	stop := b.busy()
	for range 4 {
		span, err := audit.Failover(ctx, b.Cluster, b.client.Jobs(), b.answers)
		b.must(err)
		t.Log("from the kill to the next acknowledged submission:", span.Round(time.Millisecond))
	}
	stop()
	b.idle(ctx)
	b.account(ctx)
}
