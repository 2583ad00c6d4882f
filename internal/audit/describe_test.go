package audit

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// fixedState has the running array element 7_3, which is job 10, and version 2 of a policy.
type fixedState struct{ policy *cluster.Policy }

func (fixedState) ActiveJob(id cluster.JobID) (*cluster.Job, bool) {
	if id != 10 {
		return nil, false
	}
	j := &cluster.Job{ID: 10, Array: 7, Index: 3, Attempt: 2}
	j.Alloc = &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}}}
	return j, true
}

func (fixedState) LastJob() cluster.JobID          { return 12 }
func (fixedState) ControllerName(id string) string { return "host of " + id }
func (s fixedState) Policy() *cluster.Policy       { return s.policy }

var (
	root    = command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin, Source: "10.0.0.1"}
	before  = &cluster.Policy{Version: 1, Burst: cluster.BurstPolicy{Currency: "USD"}}
	after   = &cluster.Policy{Version: 2, Admins: []string{"root"}, Partitions: []cluster.Partition{{Name: "main"}}, Burst: cluster.BurstPolicy{Currency: "USD"}}
	second  = cluster.Instant(time.Second)
	refusal = &command.Refusal{Code: command.Denied, Message: "not\nallowed"}
	refs    = []cluster.JobRef{{ID: 7, Index: 3}, {ID: 9, Index: cluster.NoIndex}}
)

func ptr[T any](v T) *T { return &v }

// descriptions has at least one command of each type; want "" is not recorded.
var descriptions = []struct {
	command command.Command
	result  command.Result
	want    string
}{
	{&command.Init{ClusterID: "c1"}, &command.Done{}, "init: cluster c1"},
	{&command.SubmitJobs{Actor: root}, &command.Submitted{First: []cluster.JobID{7}, Counts: []int32{4}}, "submit: 7, an array of 4"},
	{&command.SubmitJobs{Actor: root}, &command.Submitted{First: []cluster.JobID{11, 12}, Counts: []int32{0, 0}, SetAside: 1_500_000}, "submit: 11 to 12, 1.500000 credits set aside"},
	{&command.SubmitJobs{Actor: root}, &command.Submitted{First: []cluster.JobID{11}, Counts: []int32{0}, Again: true}, ""},
	{&command.SubmitJobs{Actor: root, Jobs: make([]command.Submission, 3)}, refusal, "submit: 3 jobs"},
	{&command.CancelJobs{Actor: root, Jobs: refs}, &command.Outcomes{Jobs: make([]command.Outcome, 2)}, "cancel: 7_3 9"},
	{&command.CancelJobs{Actor: root, Jobs: refs, Signal: 10}, &command.Outcomes{Jobs: []command.Outcome{{}, {Refused: refusal}}}, "signal 10: 7_3 9; 1 of 2 refused: not; allowed"},
	{&command.CancelJobs{Actor: root, Jobs: refs}, &command.Outcomes{Jobs: make([]command.Outcome, 2), Again: true}, ""},
	{&command.UpdateJobs{Actor: root, Jobs: refs[:1], Action: command.HoldJobs}, refusal, "hold: 7_3"},
	{&command.UpdateJobs{Actor: root, Jobs: refs[:1], Action: command.ReleaseJobs}, refusal, "release: 7_3"},
	{&command.UpdateJobs{Actor: root, Jobs: refs[:1], Action: command.RequeueJobs}, refusal, "requeue: 7_3"},
	{&command.UpdateJobs{Actor: root, Jobs: refs[:1], Action: command.SetFields, Nice: ptr[int32](5), Name: ptr("a\tb"), Begin: ptr(cluster.Instant(0)), Deadline: &second},
		refusal, `update: 7_3: name "a b", nice 5, no begin, deadline 1970-01-01T00:00:01Z`},
	{&command.UpdateJobs{Actor: root, Jobs: slices.Repeat(refs[:1], 101), Action: command.SetFields, Comment: ptr(strings.Repeat("x", 300))},
		refusal, "update: " + strings.Repeat("7_3 ", 100) + `and 1 more: comment "` + strings.Repeat("x", 191) + "..."},
	{&command.SubmitJobs{Actor: root, Jobs: make([]command.Submission, 1), Filtered: "qos: a → b"}, &command.Submitted{First: []cluster.JobID{9}, Counts: []int32{0}}, "submit: 9 to 12, changed by the submission filter: qos: a → b"},
	{&command.CreateStep{Actor: root, Job: 9, Step: cluster.StepSpec{Name: "a.out"}}, &command.StepCreated{Step: 3}, "step: 9.3: a.out"},
	{&command.CreateStep{Actor: root, Job: 9}, &command.StepCreated{Busy: "GPUs"}, ""},
	{&command.CreateStep{Actor: root, Job: 9}, refusal, "step: 9"},
	{&command.SignalStep{Actor: root, Job: 9, Step: 3}, &command.Done{}, "step end: 9.3"},
	{&command.AttachStep{Actor: root, Job: 9, Step: 3}, &command.Done{}, "step attach: 9.3"},
	{&command.SignalStep{Actor: root, Job: 9, Step: 3, Signal: 10}, &command.Done{}, "step signal: 9.3: signal 10"},
	{&command.SetCron{Actor: root, Entry: command.CronEntry{Name: "nightly", Schedule: "0 3 * * *", Zone: "Europe/Berlin"}}, &command.Done{}, "cron set: nightly: 0 3 * * * Europe/Berlin"},
	{&command.UpdateCron{Actor: root, User: "ann", Names: []string{"a", "b"}, Action: command.HoldCron}, &command.Done{}, "cron hold: ann: a b"},
	{&command.UpdateCron{Actor: root, User: "ann", Names: []string{"a"}, Action: command.ReleaseCron}, &command.Done{}, "cron release: ann: a"},
	{&command.UpdateCron{Actor: root, User: "ann", Names: []string{"a"}, Action: command.RemoveCron}, &command.Done{}, "cron remove: ann: a"},
	{&command.RecordCron{User: "ann", Name: "a"}, &command.Done{}, ""},
	{&command.SetSecret{Actor: root, Secret: command.Secret{Name: "token", Sealed: []byte("x")}}, &command.Done{}, "secret set: token"},
	{&command.DeleteSecrets{Actor: root, User: "ann", Names: []string{"a", "b"}}, &command.Done{}, "secret delete: ann: a b"},
	{&command.ResealSecrets{Secrets: make([]command.Secret, 1)}, &command.Done{}, ""},
	{&command.CommitCheckpoint{Actor: root, Job: 9, Attempt: 2, Checkpoint: cluster.Checkpoint{Dir: "/c/a"}}, &command.CheckpointCommitted{Number: 3}, "checkpoint commit: 9, attempt 2: /c/a"},
	{&command.SetCheckpoint{Actor: root, Job: 9, Number: 3, Action: command.VerifyCheckpoint}, &command.Done{}, "checkpoint verify: 9, checkpoint 3"},
	{&command.SetCheckpoint{Actor: root, Job: 9, Number: 3, Action: command.DamageCheckpoint}, &command.Done{}, "checkpoint damage: 9, checkpoint 3"},
	{&command.SetCheckpoint{Actor: root, Job: 9, Number: 3, Action: command.DropCheckpoint}, &command.Done{}, "checkpoint drop: 9, checkpoint 3"},
	{&command.RegisterNode{}, &command.Registered{}, ""},
	{&command.ReportTasks{}, &command.Done{}, ""},
	{&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: "n1", Liveness: cluster.Dead}, {Node: "n2", Liveness: cluster.Dead}, {Node: "n3"}}}, &command.Done{}, "nodes dead: n[1-2]"},
	{&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: "n3"}}}, &command.Done{}, ""},
	{&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: "n1", RebootLate: true}, {Node: "n2", Liveness: cluster.Dead, RebootLate: true}}}, &command.Done{}, "nodes reboot timeout: n[1-2]"},
	{&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: "n1", Liveness: cluster.Dead}, {Node: "n2", RebootLate: true}}}, &command.Done{}, "nodes dead: n1; reboot timed out: n2"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1", "n2"}, Action: command.DrainNodes, Reason: "fan"}, &command.Named{}, "nodes drain: n[1-2]: fan"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1"}, Action: command.ResumeNodes}, &command.Named{}, "nodes resume: n1"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1"}, Action: command.RemoveNodes, Force: true}, &command.Named{}, "nodes remove: n1 by force"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1"}, Action: command.RebootNodes, Reason: "kernel", StayDrained: true}, &command.Named{}, "nodes reboot: n1, then keep drained: kernel"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1"}, Action: command.RebootNodesWhenIdle}, &command.Named{}, "nodes reboot when idle: n1"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1"}, Action: command.ConfirmFenced, Reason: "unplugged"}, &command.Named{}, "nodes fenced: n1: unplugged"},
	{&command.FenceNode{Node: "n1"}, &command.Done{}, "nodes fenced: n1 by fence.program"},
	{&command.FenceNode{Node: "n1", Failure: "no route"}, &command.Done{}, "fence failed: n1: no route"},
	{&command.UpdateNodes{Actor: root, Names: []string{"n1"}, Action: command.CancelReboots}, &command.Named{}, "nodes cancel reboot: n1"},
	{&command.CommitPlan{Plan: cluster.Plan{
		Verdicts: []cluster.Verdict{{Job: 11, Broken: "node lost"}, {Job: 12}}, Evictions: []cluster.Preemption{{Job: 10, For: 11}},
	}}, &command.Committed{Started: []cluster.JobID{10, 99}}, "plan: start 7_3 (attempt 2) on n[1-2]; promise of 11 broken: node lost; preempt 7_3 for 11"},
	{&command.CommitPlan{Plan: cluster.Plan{
		Reclaims: []cluster.Reclaim{{Job: 10, Nodes: []string{"n2", "n1"}, For: 11}}, Grants: []cluster.NodeGrant{{Job: 11, Nodes: []cluster.NodeAllocation{{Node: "n4"}}}},
	}}, &command.Committed{}, "plan: reclaim n[1-2] from 7_3 for 11; grant n4 to 11"},
	{&command.CommitPlan{Plan: cluster.Plan{Reclaims: []cluster.Reclaim{{Job: 10, Nodes: []string{"n2"}}}}}, &command.Committed{}, "plan: reclaim n2 from 7_3 for a reservation or a drain"},
	{&command.CommitPlan{Plan: cluster.Plan{Launches: []cluster.Launch{{Job: 10, Offer: cluster.OfferKey{Name: "p5/us-east-1a", Market: cluster.Spot}, Nodes: 2, Cost: 12_500_000, Why: "it starts 3 h earlier"}}}},
		&command.Committed{}, "plan: lease 2 nodes p5/us-east-1a (spot) for job 7_3: worst-case cost 12.50 USD: it starts 3 h earlier"},
	{&command.CommitPlan{Plan: cluster.Plan{Launches: []cluster.Launch{{Job: 11, Nodes: 2}}}}, &command.Committed{Stale: []command.Stale{{Job: 11}}}, ""},
	{&command.SetOffers{Offers: make([]cluster.Offer, 2)}, &command.Done{}, ""},
	{&command.UpdateLeases{Updates: []command.LeaseUpdate{
		{Lease: 3, Event: command.LaunchRequested, Try: 1}, {Lease: 4, Event: command.LaunchDelayed}, {Lease: 4, Event: command.LaunchFailed, Try: 2, Why: "no capacity"},
		{Lease: 3, Event: command.LeaseStarted, Instance: "i-1", Price: 3_500_000}, {Lease: 3, Event: command.LeaseReclaimed, Reclaim: second},
		{Lease: 3, Event: command.LeaseEnded, Interrupted: true}, {Lease: 5, Event: command.LeaseEnded, Why: "gone"}, {Lease: 5, Event: command.LeaseConsole},
	}}, &command.Done{}, "leases: launch 3: request 1 sent; launch 4: request 2 failed: no capacity; lease 3: instance i-1, 3.50 USD an hour; " +
		"lease 3: reclaim notice: instance ends at 1970-01-01T00:00:01Z; lease 3: instance reclaimed by the cloud; lease 5: instance ended: gone"},
	{&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: 4, Event: command.LaunchDelayed}}}, &command.Done{}, ""},
	{&command.EndLeases{Actor: root, Leases: []cluster.LeaseID{3, 4}, Now: true, Why: "test"}, &command.Named{}, "leases end: 3 4 now: test"},
	{&command.CommitPlan{}, &command.Committed{}, ""},
	{&command.CommitPlan{}, refusal, ""},
	{&command.Tick{}, &command.Done{}, ""},
	{&command.ApplyPolicy{Actor: root}, &command.Done{}, `policy: version 2: admins, partition "main" added`},
	{&command.EditAccounts{Actor: root, Edits: []command.AccountEdit{
		{Action: command.AddAccount, Account: "ml", Shares: ptr[int64](5), Unset: []cluster.Limit{{Kind: cluster.MaxJobs}}},
		{Action: command.ModifyAccount, Account: "ml", User: "ada", Default: ptr(true), QOS: ptr([]string{"batch", "standard"})},
		{Action: command.DeleteAccount, Account: "old"}, {Action: command.PutAccount, Account: "new", Parent: ptr("ml")},
	}}, &command.Done{}, `accounts: add ml (shares 5, no MaxJobs), modify ml/ada (default true, qos "batch,standard"), delete old, put new (parent "ml")`},
	{&command.EditAccounts{Actor: root, Edits: slices.Repeat([]command.AccountEdit{{Action: command.DeleteAccount, Account: "a", Shares: ptr[int64](1)}}, 22)},
		refusal, "accounts: " + strings.Repeat("delete a, ", 20) + "and 2 more"},
	{&command.SetTopology{Actor: root, Switches: make([]cluster.Switch, 3)}, &command.Done{}, "topology: 3 switches"},
	{&command.CreateToken{Actor: root, Kind: command.AuthToken, Expires: second}, &command.Done{}, "token: auth until 1970-01-01T00:00:01Z"},
	{&command.UseToken{Name: "n1"}, &command.Done{}, "join: n1"},
	{&command.PutBlob{}, &command.Done{}, ""},
	{&command.RecordMember{Actor: root, ID: "m1", Name: "ctl1"}, &command.Done{}, "controller add: m1 ctl1"},
	{&command.RetireMember{Actor: root, ID: "m1"}, &command.Done{}, "controller remove: m1 host of m1"},
	{&command.RecordCertificate{}, &command.Done{}, ""},
	{&command.RevokeCertificates{Actor: root, Role: "node", Name: "n1", Reason: "lost"}, &command.Done{}, "revoke: node/n1: lost"},
	{&command.RotateCA{Actor: root, Step: command.BeginRotation, Old: []byte("old"), New: []byte("new")}, &command.Done{}, "rotate: begin: CA 11507a0e2f5e69d5 replaces cba06b5736faf67e"},
	{&command.RotateCA{Actor: root, Step: command.FinishRotation, Force: true}, &command.Done{}, "rotate: finish by force"},
	{&command.RotateCA{Actor: root, Step: command.CancelRotation}, &command.Done{}, "rotate: cancel"},
	{&command.RotateCA{Actor: root, Step: command.CompleteRotation}, &command.Done{}, "rotate: complete: the old CA is no longer accepted"},
	{&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: "ml", Amount: 2_000_000, Class: accounting.Promo, Scope: accounting.BucketScope{QOS: []string{"batch"}}, Note: "start"},
		&command.Credited{}, "credit grant: 2.000000 ml class=promo qos=batch note=start"},
	{&command.ChangeCredits{Actor: root, Action: command.VoidBucket, Bucket: 4}, &command.Credited{Receipt: accounting.Receipt{Released: 1_000_000}}, "credit void: 1.000000 bucket 4"},
	{&command.ChangeCredits{Actor: root, Action: command.VoidBucket, Bucket: 4}, refusal, "credit void: bucket 4"},
	{&command.ChangeCredits{Actor: root, Action: command.SetPrice, GPUType: "h100", Amount: 1, Effective: second}, &command.Credited{}, "credit price: 0.000001 h100 from=1970-01-01T00:00:01Z"},
	{&command.ChangeCredits{Actor: root, Action: command.SetBudget, Account: "ml", User: "ada", Window: accounting.Daily}, &command.Credited{}, "credit budget: 0.000000 ml ada window=day hard=false"},
	{&command.ChangeCredits{Actor: root, Action: command.RefundJob, Job: 9}, &command.Credited{}, "credit refund: 0.000000 job 9"},
	{&command.ChangeCredits{Actor: root, Action: command.CorrectJob, Job: 9, Key: "k"}, &command.Credited{}, "credit correct: 0.000000 job 9 key=k"},
	{&command.ChangeCredits{Actor: root, Action: command.ClosePeriod, Period: "2026-10"}, &command.Credited{}, "credit close: 2026-10"},
	{&command.ChangeCredits{Actor: root, Action: command.ClosePeriod}, &command.Credited{Receipt: accounting.Receipt{Again: true}}, ""},
	{&command.MeterJobs{}, &command.Done{}, ""},
	{&command.Restored{Taken: second, History: true}, &command.Done{}, "restore: from the backup of 1970-01-01T00:00:01Z, with history"},
}

func TestDescribe(t *testing.T) {
	types, kinds := map[string]bool{}, map[string]bool{}
	for _, x := range descriptions {
		types[reflect.TypeOf(x.command).Elem().Name()] = true
		d := Describe(x.command, x.result, before, fixedState{after})
		got := d.Kind + ": " + d.Text
		if d == (Description{}) {
			got = ""
		}
		if got != x.want {
			t.Errorf("%T %+v\n got %s\nwant %s", x.command, x.result, got, x.want)
		}
		if field := reflect.ValueOf(x.command).Elem().FieldByName("Actor"); got != "" && field.IsValid() && d.By != root {
			t.Errorf("%T: by %+v", x.command, d.By)
		}
		kind, _, _ := strings.Cut(d.Kind, " 1") // signal 10
		kinds[kind] = true
	}
	for _, name := range commandTypes(t) {
		if !types[name] {
			t.Errorf("no entry describes command.%s", name)
		}
	}
	for _, kind := range command.AuditKinds() {
		if !kinds[kind] {
			t.Errorf("no entry has the kind %q", kind)
		}
		delete(kinds, kind)
	}
	if delete(kinds, ""); len(kinds) > 0 {
		t.Errorf("kinds that command.AuditKinds does not list: %v", kinds)
	}
}

// commandTypes lists the types of package command that are commands.
func commandTypes(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../command/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func \(\*(\w+)\) kind\(\)`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) < 20 {
		t.Fatalf("found only the commands %v", names)
	}
	return names
}

// TestUpdateFields sets each field of an update alone: the audit journal names it.
func TestUpdateFields(t *testing.T) {
	typ := reflect.TypeFor[command.UpdateJobs]()
	for i := range typ.NumField() {
		switch typ.Field(i).Name {
		case "Request", "Actor", "Jobs", "Action":
			continue
		}
		var c command.UpdateJobs
		field := reflect.ValueOf(&c).Elem().Field(i)
		switch field.Kind() {
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.String:
			c.Action = command.SetAdminComment
		default:
			field.SetInt(int64(time.Minute))
		}
		if updateFields(&c) == "" {
			t.Errorf("nothing says that an update sets %s", typ.Field(i).Name)
		}
	}
}

// TestUnchangedPolicy: a policy equal to the one in force is not recorded, a refused one is.
func TestUnchangedPolicy(t *testing.T) {
	c := &command.ApplyPolicy{Actor: root}
	if d := Describe(c, &command.Done{}, after, fixedState{after}); d.Kind != "" {
		t.Errorf("an unchanged policy: %+v", d)
	}
	if d := Describe(c, refusal, after, fixedState{after}); d.Text != "version 2" {
		t.Errorf("a refused policy: %+v", d)
	}
}
