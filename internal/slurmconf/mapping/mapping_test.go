package mapping

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/slurmconf"
	"github.com/greylag/greylag/pkg/cluster"
)

// read returns the input of texts; "" is no file.
func read(t *testing.T, conf, dump, qos string) (in Input, err error) {
	t.Helper()
	dir := t.TempDir()
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if in.Main, err = slurmconf.Read(path("slurm.conf", conf)); err != nil {
		return in, err
	}
	if in.Dump, err = slurmconf.ReadDump(path("dump", dump)); err != nil {
		return in, err
	}
	in.QOS, err = slurmconf.ReadTable(path("qos", qos))
	return in, err
}

// convert converts texts, and checks that the readers of gctl accept the result.
func convert(t *testing.T, conf, dump, qos string) Result {
	t.Helper()
	in, err := read(t, conf, dump, qos)
	if err != nil {
		t.Fatal(err)
	}
	out := Convert(in)
	accept(t, &out)
	return out
}

func accept(t testing.TB, out *Result) {
	t.Helper()
	text, err := clusterdoc.WritePolicy(&out.Policy)
	if err == nil {
		_, err = clusterdoc.ReadPolicy("policy.toml", text)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if text, err = clusterdoc.WriteAccounts(out.Accounts, out.Users); err == nil {
		_, _, err = clusterdoc.ReadAccounts("accounts.toml", text)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// notes returns the notes without their places.
func notes(out *Result) (all []string) {
	for _, n := range out.Notes {
		all = append(all, n.Key+": "+n.Text)
	}
	return all
}

func hasNote(out *Result, kind NoteKind, begin string) bool {
	return slices.ContainsFunc(out.Notes, func(n Note) bool { return n.Kind == kind && strings.HasPrefix(n.Key+": "+n.Text, begin) })
}

// TestSettings: each line changes one field of the policy.
func TestSettings(t *testing.T) {
	for line, field := range map[string]func(*cluster.Policy) (any, any){
		"ClusterName=a":                               func(p *cluster.Policy) (any, any) { return p.Cluster, "a" },
		"SLURMDTIMEOUT=60":                            func(p *cluster.Policy) (any, any) { return p.NodeTimeout, time.Minute },
		"KillWait=5":                                  func(p *cluster.Policy) (any, any) { return p.KillWait, 5 * time.Second },
		"MaxArraySize=7":                              func(p *cluster.Policy) (any, any) { return p.MaxArray, int32(7) },
		"MaxJobCount=7":                               func(p *cluster.Policy) (any, any) { return p.MaxJobs, int64(7) },
		"MaxBatchRequeue=0":                           func(p *cluster.Policy) (any, any) { return p.MaxRestarts, int32(0) },
		"PrivateData=jobs":                            func(p *cluster.Policy) (any, any) { return p.Private, true },
		"AccountingStorageEnforce=safe":               func(p *cluster.Policy) (any, any) { return p.RequireAccount, true },
		"PriorityWeightAge=9":                         func(p *cluster.Policy) (any, any) { return p.Scheduling.Weights.Age, int64(9) },
		"PriorityMaxAge=1-0":                          func(p *cluster.Policy) (any, any) { return p.Scheduling.Weights.MaxAge, 24 * time.Hour },
		"PriorityDecayHalfLife=0":                     func(p *cluster.Policy) (any, any) { return p.Scheduling.FairShare.HalfLife, time.Duration(0) },
		"PriorityFlags=no_fair_tree":                  func(p *cluster.Policy) (any, any) { return p.Scheduling.FairShare.Classic, true },
		"SchedulerType=sched/builtin":                 func(p *cluster.Policy) (any, any) { return p.Scheduling.Depth, int32(0) },
		"SchedulerParameters=max_switch_wait=9,defer": func(p *cluster.Policy) (any, any) { return p.Scheduling.MaxSwitchWait, 9 * time.Second },
		"Licenses=a:3,b,a:1":                          func(p *cluster.Policy) (any, any) { return fmt.Sprint(p.Scheduling.Licences), "[{a 4} {b 1}]" },
		"PartitionName=p,q Nodes=n1,n[2-3]": func(p *cluster.Policy) (any, any) {
			return fmt.Sprint(len(p.Partitions), p.Partitions[1].Nodes), "2 [n1 n[2-3]]"
		},
		"PartitionName=p MaxTime=1:00:00":   func(p *cluster.Policy) (any, any) { return p.Partitions[0].MaxTime, time.Hour },
		"PartitionName=p DefMemPerGPU=1024": func(p *cluster.Policy) (any, any) { return p.Partitions[0].MemPerGPU, cluster.GiB },
		"PartitionName=p State=inactive":    func(p *cluster.Policy) (any, any) { return p.Partitions[0].Down, true },
		"PartitionName=p Priority=3":        func(p *cluster.Policy) (any, any) { return p.Partitions[0].Priority, int32(3) },
		"PartitionName=p Default=no":        func(p *cluster.Policy) (any, any) { return p.Partitions[0].Default, false },
		"PartitionName=p AllowAccounts=a,b": func(p *cluster.Policy) (any, any) { return strings.Join(p.Partitions[0].AllowAccounts, "+"), "a+b" },
		`PartitionName=p TRESBillingWeights="CPU=1,Mem=0.5G,GRES/gpu:h100=2"`: func(p *cluster.Policy) (any, any) {
			return fmt.Sprint(p.Scheduling.FairShare.Billing), "[{cpu 1000} {h100 2000} {mem 500}]"
		},
	} {
		out := convert(t, line+"\n", "", "")
		if got, want := field(&out.Policy); got != want {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}

// TestNotes: what has no counterpart is reported, and what is off is not.
func TestNotes(t *testing.T) {
	for line, want := range map[string]struct {
		kind NoteKind
		text string
	}{
		"Frobnicate=1":                       {Unknown, "Frobnicate: unknown setting"},
		"JobSubmitPlugins=lua":               {NotConverted, "JobSubmitPlugins: job_submit plugins"},
		"PreemptType=preempt/partition_prio": {NotConverted, "PreemptType: only a QOS can preempt another"},
		"MaxArraySize=many":                  {Check, `MaxArraySize: "many" is not a number`},
		"PartitionName=p QOS=x":              {NotConverted, "QOS: partition p: a partition has no QOS"},
		"PartitionName=p Frob=x":             {Unknown, "Frob: unknown setting of a partition"},
		"PartitionName=p Nodes=n[1":          {Check, "Nodes: not a host list"},
		"NodeName=n1 Weight=5":               {NotConverted, "NodeName: n1: Weight=5: nodes have no weight"},
		"NodeName=n1 Feature=a,b":            {NotConverted, `NodeName: n1: set features = ["a", "b"]`},
		"NodeName=n1 RealMemory=20000":       {NotConverted, `NodeName: n1: RealMemory=20000: nodes offer all`},
		"NodeName=n1 Gres=shard:4":           {NotConverted, `NodeName: n1: generic resource "shard"`},
		"NodeName=n1 Frob=1":                 {Unknown, "Frob: unknown setting of a node"},
		"NodeName=n1 State=CLOUD":            {NotConverted, "NodeName: n1: State=CLOUD"},
		"DownNodes=n1":                       {NotConverted, "DownNodes: node states are not configured"},
		"NodeSet=s Feature=none":             {Check, `NodeSet: no NodeName line has the feature "none"`},
		"PriorityWeightAge=0":                {Check, "PriorityWeightAge: no priority weight is set"},
	} {
		if out := convert(t, line+"\n", "", ""); !hasNote(&out, want.kind, want.text) {
			t.Errorf("%s: %q", line, notes(&out))
		}
	}
	for _, line := range []string{"JobSubmitPlugins=", "Prolog=none", "AuthType=auth/munge", "MpiDefault=none", "BurstBufferType=", "PartitionName=p OverSubscribe=NO MinNodes=1 PreemptMode=OFF", "SuspendTime=INFINITE"} {
		if out := convert(t, "PriorityWeightAge=1\nPartitionName=DEFAULT TRESBillingWeights=CPU=1\n"+line+"\n", "", ""); len(out.Notes) > 0 {
			t.Errorf("%s: %q", line, notes(&out))
		}
	}
}

// TestTiers: a QOS has a tier above those that it preempts, and none preempts itself.
func TestTiers(t *testing.T) {
	const table = "Name|Preempt|PreemptMode\nlow||cluster\nmid|low|cancel\nhigh|mid,low,gone|off\na|b|requeue\nb|a|requeue\n"
	out := convert(t, "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n", "", table)
	var got []string
	for _, q := range out.Policy.QOS {
		got = append(got, fmt.Sprintf("%s %d %s %s", q.Name, q.Tier, q.PreemptMode, strings.Join(q.Preempts, "+")))
	}
	want := []string{"low 0 requeue ", "mid 1 cancel low", "high 2 off mid+low", "a 1 requeue b", "b 0 requeue "}
	if !slices.Equal(got, want) || !hasNote(&out, Check, "QOS b: does not preempt a") {
		t.Errorf("got %q, want %q, notes %q", got, want, notes(&out))
	}
	if out = convert(t, "", "", table); out.Policy.QOS[1].Tier != 0 || len(out.Policy.QOS[1].Preempts) > 0 {
		t.Errorf("without PreemptType: %+v", out.Policy.QOS[1])
	}
}

// TestPreemptExempt converts the times for which jobs are exempt from preemption.
func TestPreemptExempt(t *testing.T) {
	out := convert(t, "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptExemptTime=00:30:00\n", "", "Name|PreemptExemptTime\nlow|01:00:00\nhigh|\n")
	if p := out.Policy; p.PreemptExempt != 30*time.Minute || p.QOS[0].PreemptExempt != time.Hour || p.QOS[1].PreemptExempt != 0 {
		t.Errorf("policy %s, qos %+v", p.PreemptExempt, p.QOS)
	}
	standard := cluster.DefaultPolicy().PreemptExempt
	if out = convert(t, "PreemptExemptTime=-1\n", "", ""); out.Policy.PreemptExempt != standard {
		t.Errorf("-1 became %s", out.Policy.PreemptExempt)
	}
}

// TestAccounts: the tree, defaults, coordinators and limits of a dump.
func TestAccounts(t *testing.T) {
	const dump = `Cluster - 'c':QOS='normal'
Parent - 'root'
Account - 'a':Description='x':GrpTRES=cpu=8,billing=3:QOS='+fast,normal'
Parent - 'a'
Account - 'b':Fairshare=parent:DefaultQOS='slow'
User - 'u':DefaultAccount='a':AdminLevel='Administrator':Coordinator='b'
User - 'u':DefaultAccount='a':Partition='p'
User - 'v':DefaultAccount='b':Partition='gone'
Parent - 'lost'
User - 'w':Fairshare=many:MaxJobs=0
Wckey - 'x'
`
	out := convert(t, "PartitionName=p\n", dump, "")
	text, err := clusterdoc.WriteAccounts(out.Accounts, out.Users)
	const want = `[[account]]
name = 'root'
qos = ['normal']

[[account]]
name = 'a'
description = 'x'
qos = ['fast', 'normal']
limits = ['GrpTRES=cpu=8']

[[account]]
name = 'b'
parent = 'a'
shares = 'parent'
coordinators = ['u']

[[user]]
name = 'u'
account = 'a'
default = true

[[user]]
name = 'u'
account = 'a'
partition = 'p'

[[user]]
name = 'w'
account = 'root'
limits = ['MaxJobs=0']
`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
	if !slices.Equal(out.Policy.Admins, []string{"root", "greylag", "u"}) {
		t.Error(out.Policy.Admins)
	}
	for begin, kind := range map[string]NoteKind{
		"Account a: GrpTRES: GrpTRES=billing=3": NotConverted, "Account b: the default QOS slow": Check, `User v: no partition "gone"`: Check,
		"Parent lost: no line defines": Check, "User w: Fairshare": Check, "Wckey x: unknown": Unknown, "QOS: no definition of normal, fast, slow": Check,
	} {
		if !hasNote(&out, kind, begin) {
			t.Errorf("no note %q: %q", begin, notes(&out))
		}
	}
}

// TestManyNodes: 10,000 node lines are read in time and memory that grow with their number.
func TestManyNodes(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "NodeName=node%05d CPUs=64 Gres=gpu:h100:8 Feature=rack%d\n", i, i/40)
	}
	b.WriteString("NodeSet=r3 Feature=rack3\nPartitionName=p Nodes=r3,node00000\n")
	out := convert(t, b.String(), "", "")
	if got := strings.Join(out.Policy.Partitions[0].Nodes, " "); got != "node[00120-00159] node00000" {
		t.Error(got)
	}
}

// FuzzConvert: whatever the files hold, the result is accepted.
func FuzzConvert(f *testing.F) {
	f.Add("ClusterName=c\nPartitionName=p Nodes=ALL Default=YES\nPreemptType=preempt/qos", "Cluster - 'c':QOS='n'\nAccount - 'a'\nParent - 'a'\nUser - 'u':DefaultAccount='a'", "a|b|requeue\nb||cancel\n")
	f.Add("PartitionName=\"\x01\" MaxTime=1 DefaultTime=2\nLicenses=a:9999999999,,:3", "Account - '':Fairshare=-1\nUser - '\x02'", "x|||1e300|cpu=9,billing=1\n")
	f.Add("PriorityWeightAge=1\nNodeName=n[1-2] Gres=gpu:h100:8 Feature=f Weight=2\nNodeSet=s Feature=f\nPartitionName=q Nodes=s,n2 MaxTime=1-0 TRESBillingWeights=CPU=1,Mem=1G",
		"Cluster - 'c'\nAccount - 'a':GrpTRES=cpu=1,gres/gpu=2:MaxJobs=3\nParent - 'a'\nUser - 'u':Partition='q':Coordinator='a':AdminLevel='Operator':Fairshare=parent", "x|y|||cpu=1|1-0\ny\n")
	f.Fuzz(func(t *testing.T, conf, dump, qos string) {
		var in Input
		for line := range strings.Lines(strings.ToValidUTF8(conf, "?")) {
			if pairs, err := slurmconf.ParsePairs(line); err == nil && len(pairs) > 0 {
				in.Main = append(in.Main, slurmconf.Line{File: "slurm.conf", Pairs: pairs})
			}
		}
		for line := range strings.Lines(strings.ToValidUTF8(dump, "?")) {
			if e, err := slurmconf.ParseEntity(strings.TrimSpace(line)); err == nil {
				in.Dump = append(in.Dump, e)
			}
		}
		heading := []string{"Name", "Preempt", "PreemptMode", "UsageFactor", "GrpTRES", "MaxWall"}
		for line := range strings.Lines(strings.ToValidUTF8(qos, "?")) {
			row := slurmconf.Line{File: "qos"}
			for i, cell := range strings.Split(strings.TrimSpace(line), "|") {
				row.Pairs = append(row.Pairs, slurmconf.Pair{Key: heading[i%len(heading)], Value: cell})
			}
			in.QOS = append(in.QOS, row)
		}
		in.GRES = in.Main
		out := Convert(in)
		accept(t, &out)
	})
}
