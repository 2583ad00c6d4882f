package gqueue

import (
	"bufio"
	"bytes"
	"encoding/json"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

// writeJobsJSON writes {"jobs":[...]}, one job per line, so that 100,000 of them need no second
// copy in memory. of converts a job. An answer that no leader confirmed is marked after them.
func writeJobsJSON(out *bufio.Writer, jobs []*greylagv1.Job, of func(*greylagv1.Job) any, asOf *greylagv1.AsOf) error {
	out.WriteString(`{"jobs":[`) // errors show at Flush
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	for i, j := range jobs {
		line.Reset()
		if err := e.Encode(of(j)); err != nil {
			return err
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
	}
	out.WriteString("\n]")
	if asOf.GetStale() {
		line.Reset()
		if err := e.Encode(ui.WriteAsOf(asOf)); err != nil {
			return err
		}
		out.WriteString(",\n\"as_of\":")
		out.Write(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
	}
	_, err := out.WriteString("}\n")
	return err
}
