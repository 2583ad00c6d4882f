// Package ec2wire is an endpoint that speaks the query protocol of EC2 over HTTP, for tests of programs that use the AWS
// SDK. An instance is a record: nothing runs.
//
// The endpoint has one region. Faults are set by tests: error codes, lost answers, instances that become visible late or
// boot slowly, and reclaims. Time is a function that the test provides.
package ec2wire

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server is the endpoint. Its fields are set before its first call.
type Server struct {
	Region    string
	Types     []Type
	Subnets   map[string]string // ID: zone
	Templates map[string]Template
	Prices    []SpotPrice

	Now          func() time.Time
	PageSize     int           // most records of an answer; 0: no limit
	OwnerID      string        // account of the instances
	VisibleAfter time.Duration // since its launch an instance is in no list for this time
	BootTime     time.Duration // an instance is pending for this time
	EndTime      time.Duration // an instance is shutting down for this time
	// Notice is the time between the notice of a reclaim and the end of the instance.
	Notice time.Duration

	mu        sync.Mutex
	instances []*Instance
	tokens    map[string]*launch
	faults    []*Fault
	calls     map[string]int
}

// Type is an instance type.
type Type struct {
	Name         string
	Zones        []string // that have it
	VCPUs        int
	MemoryMiB    int
	GPUs         int
	GPUName      string
	GPUMemoryMiB int
}

// Template is a launch template.
type Template struct {
	Name          string
	Image         string
	HasInterfaces bool // it describes network interfaces
}

// SpotPrice is a price of the price history.
type SpotPrice struct {
	Type, Zone, Price string
	Since             time.Time
}

// Instance is the record of an instance.
type Instance struct {
	ID, Type, Zone, Subnet string
	Token                  string
	UserData               string // as it was sent: base64
	Spot                   string // ID of the spot request; "" of an instance on demand
	MaxPrice               string
	Tags                   map[string]string
	Request                url.Values // all parameters of the call
	Launched               time.Time
	Ended                  time.Time // when its end was asked for; zero: it was not
	Protected              bool      // it cannot be terminated
	Noticed                time.Time // when the notice of its reclaim was given; zero: none was
}

// Fault changes the answer of calls.
type Fault struct {
	Action string // "": all
	Type   string // of RunInstances; "": all
	Zone   string // of RunInstances; "": all
	Code   string // error code of the answer; the call has no effect
	Status int    // HTTP status of the answer; 0: 400
	Lost   bool   // the call has its effect, and its connection breaks before the answer
	Most   int    // RunInstances launches at most this number; 0: no limit
	Times  int    // calls that it changes; 0: all
}

// launch is the result of RunInstances with a client token.
type launch struct {
	request string
	ids     []string
}

// failure is an error of the protocol.
type failure struct {
	status        int
	code, message string
}

func refuse(code, format string, args ...any) *failure {
	return &failure{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

// Inject adds a fault. The first fault that fits a call changes it.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Protect keeps an instance from being terminated.
func (s *Server) Protect(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.instances {
		one.Protected = one.Protected || one.ID == id
	}
}

// Clear removes all faults.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Calls returns how often an action was called.
func (s *Server) Calls(action string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[action]
}

// AllCalls returns the number of all calls.
func (s *Server) AllCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, calls := range s.calls {
		n += calls
	}
	return n
}

// Instances returns copies of all records, in the order of their launch.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Instance, len(s.instances))
	for i, one := range s.instances {
		all[i] = *one
	}
	return all
}

// Reclaim gives notice that a spot instance ends after the time of Notice.
func (s *Server) Reclaim(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.instances {
		if one.ID == id && one.Spot != "" {
			one.Noticed = s.Now()
		}
	}
}

// PowerOff ends an instance as its own operating system does.
func (s *Server) PowerOff(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.instances {
		if one.ID == id && one.Ended.IsZero() {
			one.Ended = s.Now()
		}
	}
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	action := r.Form.Get("Action")
	if s.calls == nil {
		s.calls, s.tokens = map[string]int{}, map[string]*launch{}
	}
	s.calls[action]++
	fault := s.fault(action, r.Form)
	if fault.Code != "" {
		respond(w, nil, &failure{cmp.Or(fault.Status, http.StatusBadRequest), fault.Code, "injected"})
		return
	}
	answer, failed := s.call(action, r, fault)
	if fault.Lost {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	respond(w, answer, failed)
}

// fault returns the first fault that fits a call, and counts its use.
func (s *Server) fault(action string, form url.Values) Fault {
	for i, f := range s.faults {
		if f.Action != "" && f.Action != action || f.Type != "" && f.Type != form.Get("InstanceType") ||
			f.Zone != "" && f.Zone != s.Subnets[form.Get("SubnetId")] {
			continue
		}
		if f.Times--; f.Times == 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		return *f
	}
	return Fault{}
}

func (s *Server) call(action string, r *http.Request, fault Fault) (any, *failure) {
	if !strings.Contains(r.Header.Get("Authorization"), "/"+s.Region+"/ec2/aws4_request") {
		return nil, &failure{http.StatusUnauthorized, "AuthFailure", "the request is not signed for ec2 in " + s.Region}
	}
	handlers := map[string]func(url.Values) (any, *failure){
		"RunInstances":                   func(form url.Values) (any, *failure) { return s.runInstances(form, fault.Most) },
		"DescribeInstances":              s.describeInstances,
		"TerminateInstances":             s.terminateInstances,
		"GetConsoleOutput":               s.getConsoleOutput,
		"DescribeSpotInstanceRequests":   s.describeSpotRequests,
		"DescribeSpotPriceHistory":       s.describeSpotPrices,
		"DescribeInstanceTypes":          s.describeTypes,
		"DescribeInstanceTypeOfferings":  s.describeOfferings,
		"DescribeSubnets":                s.describeSubnets,
		"DescribeLaunchTemplateVersions": s.describeTemplates,
	}
	handler, ok := handlers[action]
	if !ok {
		return nil, refuse("InvalidAction", "this endpoint has no %s; it has %v", action, slices.Sorted(maps.Keys(handlers)))
	}
	return handler(r.Form)
}

type wireError struct {
	XMLName xml.Name `xml:"Response"`
	Code    string   `xml:"Errors>Error>Code"`
	Message string   `xml:"Errors>Error>Message"`
	Request string   `xml:"RequestID"`
}

func respond(w http.ResponseWriter, answer any, failed *failure) {
	status := http.StatusOK
	if failed != nil {
		status, answer = failed.status, wireError{Code: failed.code, Message: failed.message, Request: "ec2wire"}
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(answer)
}

// list returns the values of NAME.1, NAME.2 and following parameters.
func list(form url.Values, name string) []string {
	var all []string
	for i := 1; form.Has(fmt.Sprintf("%s.%d", name, i)); i++ {
		all = append(all, form.Get(fmt.Sprintf("%s.%d", name, i)))
	}
	return all
}

// filters returns the values of each filter of a call.
func filters(form url.Values) map[string][]string {
	all := map[string][]string{}
	for i := 1; form.Has(fmt.Sprintf("Filter.%d.Name", i)); i++ {
		at := fmt.Sprintf("Filter.%d", i)
		all[form.Get(at+".Name")] = list(form, at+".Value")
	}
	return all
}

// tags returns the tags that a call gives to a kind of resource.
func tags(form url.Values, kind string) map[string]string {
	all := map[string]string{}
	for i := 1; form.Has(fmt.Sprintf("TagSpecification.%d.ResourceType", i)); i++ {
		at := fmt.Sprintf("TagSpecification.%d", i)
		for j := 1; form.Get(at+".ResourceType") == kind && form.Has(fmt.Sprintf("%s.Tag.%d.Key", at, j)); j++ {
			all[form.Get(fmt.Sprintf("%s.Tag.%d.Key", at, j))] = form.Get(fmt.Sprintf("%s.Tag.%d.Value", at, j))
		}
	}
	return all
}

// page returns the part of all that a call asks for, and the token of the next part.
func page[T any](s *Server, form url.Values, all []T) ([]T, string) {
	from, most := 0, s.PageSize
	_, _ = fmt.Sscan(form.Get("NextToken"), &from)
	if asked := 0; form.Has("MaxResults") {
		_, _ = fmt.Sscan(form.Get("MaxResults"), &asked)
		if most == 0 || asked < most {
			most = asked
		}
	}
	if most == 0 || from+most >= len(all) {
		return all[min(from, len(all)):], ""
	}
	return all[from : from+most], fmt.Sprint(from + most)
}
