package sim

import (
	"bufio"
	"io"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// seconds writes an instant in seconds of the trace; "" if it is not set.
func seconds(at cluster.Instant) string {
	if at == 0 {
		return ""
	}
	return trace.Seconds(time.Duration(at - Epoch))
}

// WriteCSV writes one line per job under a header: id, submit, promise, start, end, nodes, reason.
// Times are seconds of the trace, and empty if not set. promise is the first promised start; if the
// policy made none, it is the time of submission.
func WriteCSV(w io.Writer, results []Result) error {
	out := bufio.NewWriter(w)
	out.WriteString("id,submit,promise,start,end,nodes,reason\n") // an error shows at Flush
	for i := range results {
		r := &results[i]
		names := make([]string, len(r.Nodes))
		for k := range r.Nodes {
			names[k] = r.Nodes[k].Node
		}
		reason := r.Reason
		if r.Broken != "" {
			reason += "; promise broken: " + r.Broken
		}
		fields := []string{r.Job.Name, seconds(r.Job.Submit), seconds(r.Promise), seconds(r.Start), seconds(r.End), hostlist.Compress(names), reason}
		for k, f := range fields {
			if k > 0 {
				out.WriteByte(',')
			}
			out.WriteString(quoted(f))
		}
		out.WriteByte('\n')
	}
	return out.Flush()
}

// quoted returns a field as RFC 4180 writes it.
func quoted(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
