package report

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Ended is an ended attempt of a job with the fields that accounting programs need.
type Ended struct {
	Ref, ID                          string
	Partition, QOS, Account          string
	User                             string
	UID, GID                         uint32
	Submitted, Eligible, Start, End  time.Time // zero: never
	ExitCode, ExitSignal             int32
	State                            string
	Nodes                            int64
	NodeList                         string // compressed; "" if no longer known
	CPUs, ReqCPUs, ReqNodes, ReqGPUs int64
	ReqMemory                        int64  // bytes, of the whole job
	GPUTypes                         string // requested, the best first; "" for any
	TRES                             []Count
	TimeLimit                        time.Duration // 0: none
	Name                             string
}

// Count is an amount of a resource.
type Count struct {
	Resource string
	Count    int64
}

// XDMoD returns finished jobs in the 26 columns of sacct that Open XDMoD's shredder reads
// (xdmod-slurm-helper: sacct --parsable2 --noheader --allocations --duplicates), in UTC, one line
// for each attempt. Characters that would break a line or a column become "?".
func XDMoD(cluster string, jobs []Ended) []byte {
	var b bytes.Buffer
	for i := range jobs {
		j := &jobs[i]
		cells := [...]string{
			j.Ref, j.ID, cluster, j.Partition, j.QOS, j.Account, strconv.FormatUint(uint64(j.GID), 10), strconv.FormatUint(uint64(j.GID), 10),
			j.User, strconv.FormatUint(uint64(j.UID), 10), moment(j.Submitted), moment(j.Eligible), moment(j.Start), moment(j.End), elapsed(j.elapsed()),
			fmt.Sprintf("%d:%d", j.ExitCode, j.ExitSignal), j.State, strconv.FormatInt(j.Nodes, 10), strconv.FormatInt(j.CPUs, 10), strconv.FormatInt(j.ReqCPUs, 10),
			fmt.Sprintf("%dM", j.ReqMemory>>20), j.asked(), tres(j.TRES), limit(j.TimeLimit), j.nodeList(), j.Name,
		}
		for k, c := range cells {
			if k > 0 {
				b.WriteByte('|')
			}
			b.WriteString(strings.ReplaceAll(tame(c), "|", "?"))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func (j *Ended) elapsed() time.Duration {
	if j.Start.IsZero() {
		return 0
	}
	return j.End.Sub(j.Start)
}

func (j *Ended) nodeList() string {
	if j.Nodes == 0 {
		return "None assigned"
	}
	return j.NodeList
}

// moment formats a time as sacct does.
func moment(t time.Time) string {
	if t.IsZero() {
		return "Unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05")
}

// elapsed formats a duration as sacct does: [DAYS-]HH:MM:SS.
func elapsed(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		return strconv.FormatInt(days, 10) + "-" + text
	}
	return text
}

func limit(d time.Duration) string {
	if d == 0 {
		return "UNLIMITED"
	}
	return elapsed(d)
}

// asked returns the request of the job in the format of AllocTRES.
func (j *Ended) asked() string {
	list := []Count{{"cpu", j.ReqCPUs}, {"mem", j.ReqMemory >> 20}, {"node", j.ReqNodes}, {"gpu", j.ReqGPUs}}
	if kind, _, several := strings.Cut(j.GPUTypes, ","); kind != "" && !several {
		list = append(list, Count{"gpu:" + kind, j.ReqGPUs})
	}
	return tres(list)
}

// tres formats resources in Slurm's notation: billing programs search for gres/gpu=N.
func tres(list []Count) string {
	amount := make(map[string]int64, len(list))
	var order []string
	for _, x := range list {
		amount[x.Resource] = x.Count
		if strings.HasPrefix(x.Resource, "gpu:") || strings.HasPrefix(x.Resource, "gres/") {
			order = append(order, x.Resource)
		}
	}
	var out []string
	for _, name := range append([]string{"cpu", "mem", "node", "gpu"}, order...) {
		n := amount[name]
		switch {
		case n == 0:
		case name == "mem":
			out = append(out, fmt.Sprintf("mem=%dM", n))
		case strings.HasPrefix(name, "gpu"):
			out = append(out, fmt.Sprintf("gres/%s=%d", name, n))
		default:
			out = append(out, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(out, ",")
}
