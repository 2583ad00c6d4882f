package metrics

import (
	"fmt"
	"net/http"
	"strings"
)

// Check is one condition of readiness.
type Check struct {
	Name   string
	Reason string // why it fails; "" if it does not
}

// Failed returns a check that fails with a reason if failed is true.
func Failed(name string, failed bool, format string, args ...any) Check {
	if !failed {
		return Check{Name: name}
	}
	return Check{name, fmt.Sprintf(format, args...)}
}

// Health serves GET /livez and GET /readyz. /livez answers 200 while the process can answer, so a
// supervisor may restart on its failure. /readyz answers 200 if no check fails, else 503 with the
// failed checks; with the parameter verbose it lists all.
func Health(mux *http.ServeMux, checks func() []Check) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		var text strings.Builder
		status := http.StatusOK
		for _, c := range checks() {
			switch {
			case c.Reason != "":
				status = http.StatusServiceUnavailable
				fmt.Fprintf(&text, "[-] %s: %s\n", c.Name, c.Reason)
			case r.URL.Query().Has("verbose"):
				fmt.Fprintf(&text, "[+] %s\n", c.Name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		if status == http.StatusOK {
			text.WriteString("ok\n")
		}
		fmt.Fprint(w, text.String()) // a client that has disconnected reads nothing
	})
}
