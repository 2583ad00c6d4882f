package ec2wire

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// lifetimeOfRecords is for how long the records of terminated instances are listed.
const lifetimeOfRecords = time.Hour

// minSpotPrice is the lowest maximum price that EC2 accepts.
const minSpotPrice = 0.001

type wireState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type wireReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type wireTag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type wirePlacement struct {
	Zone string `xml:"availabilityZone"`
}

type wireInstance struct {
	ID         string        `xml:"instanceId"`
	State      wireState     `xml:"instanceState"`
	Type       string        `xml:"instanceType"`
	Lifecycle  string        `xml:"instanceLifecycle,omitempty"`
	Spot       string        `xml:"spotInstanceRequestId,omitempty"`
	Address    string        `xml:"privateIpAddress,omitempty"`
	Launched   string        `xml:"launchTime"`
	Token      string        `xml:"clientToken"`
	Placement  wirePlacement `xml:"placement"`
	Transition string        `xml:"reason"`
	Reason     *wireReason   `xml:"stateReason"`
	Tags       []wireTag     `xml:"tagSet>item"`
}

type wireReservation struct {
	ID        string         `xml:"reservationId"`
	Owner     string         `xml:"ownerId"`
	Instances []wireInstance `xml:"instancesSet>item"`
}

var states = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}

// interrupted reports whether the cloud has ended an instance, and when.
func (s *Server) interrupted(one *Instance) (bool, time.Time) {
	at := one.Noticed.Add(s.Notice)
	return !one.Noticed.IsZero() && !s.Now().Before(at) && (one.Ended.IsZero() || at.Before(one.Ended)), at
}

func (s *Server) state(one *Instance) (string, *wireReason) {
	if ended, at := s.interrupted(one); ended {
		reason := &wireReason{"Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination"}
		if s.Now().Before(at.Add(s.EndTime)) {
			return "shutting-down", reason
		}
		return "terminated", reason
	}
	if !one.Ended.IsZero() {
		reason := &wireReason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"}
		if s.Now().Before(one.Ended.Add(s.EndTime)) {
			return "shutting-down", reason
		}
		return "terminated", reason
	}
	if s.Now().Before(one.Launched.Add(s.BootTime)) {
		return "pending", nil
	}
	return "running", nil
}

func (s *Server) wire(one *Instance) wireInstance {
	name, reason := s.state(one)
	out := wireInstance{
		ID: one.ID, State: wireState{states[name], name}, Type: one.Type, Launched: one.Launched.UTC().Format(time.RFC3339),
		Token: one.Token, Placement: wirePlacement{one.Zone}, Reason: reason, Spot: one.Spot,
	}
	if name == "running" {
		out.Address = "10.0.0." + one.ID[len(one.ID)-2:]
	}
	if one.Spot != "" {
		out.Lifecycle = "spot"
	}
	for _, key := range slices.Sorted(maps.Keys(one.Tags)) {
		out.Tags = append(out.Tags, wireTag{key, one.Tags[key]})
	}
	return out
}

type runInstancesResponse struct {
	XMLName xml.Name `xml:"RunInstancesResponse"`
	wireReservation
}

// runInstances launches all instances of a call or none, except where a fault limits them.
func (s *Server) runInstances(form url.Values, most int) (any, *failure) {
	token := form.Get("ClientToken")
	request := maps.Clone(form)
	if prior, ok := s.tokens[token]; ok && token != "" {
		return s.repeated(prior, request.Encode())
	}
	zone, failed := s.checkLaunch(form)
	if failed != nil {
		return nil, failed
	}
	if form.Get("DryRun") == "true" {
		return nil, &failure{http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."}
	}
	count, _ := strconv.Atoi(form.Get("MaxCount"))
	if most > 0 {
		count = min(count, most)
	}
	started := &launch{request: request.Encode()}
	for range count {
		one := &Instance{
			ID: fmt.Sprintf("i-%017x", len(s.instances)+1), Type: form.Get("InstanceType"), Zone: zone, Subnet: form.Get("SubnetId"),
			Token: token, UserData: form.Get("UserData"), MaxPrice: form.Get("InstanceMarketOptions.SpotOptions.MaxPrice"),
			Tags: tags(form, "instance"), Request: request, Launched: s.Now(),
		}
		if form.Get("InstanceMarketOptions.MarketType") == "spot" {
			one.Spot = fmt.Sprintf("sir-%08x", len(s.instances)+1)
		}
		s.instances = append(s.instances, one)
		started.ids = append(started.ids, one.ID)
	}
	if token != "" {
		s.tokens[token] = started
	}
	return s.reservation(started.ids), nil
}

// repeated answers a call whose client token was used before.
func (s *Server) repeated(prior *launch, request string) (any, *failure) {
	if prior.request != request {
		return nil, refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
	}
	live := false
	for _, one := range s.instances {
		name, _ := s.state(one)
		live = live || slices.Contains(prior.ids, one.ID) && name != "terminated"
	}
	if !live {
		return nil, refuse("IdempotentInstanceTerminated", "The instances of this client token were terminated.")
	}
	return s.reservation(prior.ids), nil
}

func (s *Server) reservation(ids []string) runInstancesResponse {
	out := runInstancesResponse{wireReservation: wireReservation{ID: "r-1", Owner: s.OwnerID}}
	for _, one := range s.instances {
		if slices.Contains(ids, one.ID) {
			out.Instances = append(out.Instances, s.wire(one))
		}
	}
	return out
}

// checkLaunch refuses what EC2 refuses, and returns the zone of a launch.
func (s *Server) checkLaunch(form url.Values) (string, *failure) {
	zone, ok := s.Subnets[form.Get("SubnetId")]
	if !ok {
		return "", refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", form.Get("SubnetId"))
	}
	template, failed := s.template(form)
	if failed != nil {
		return "", failed
	}
	if template.HasInterfaces {
		return "", refuse("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID may not be specified on the same request")
	}
	if form.Get("ImageId") == "" && template.Image == "" {
		return "", refuse("MissingParameter", "The request must contain the parameter ImageId")
	}
	if _, err := base64.StdEncoding.DecodeString(form.Get("UserData")); err != nil {
		return "", refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	i := slices.IndexFunc(s.Types, func(t Type) bool { return t.Name == form.Get("InstanceType") })
	if i < 0 {
		return "", refuse("InvalidParameterValue", "Invalid value '%s' for InstanceType.", form.Get("InstanceType"))
	}
	if !slices.Contains(s.Types[i].Zones, zone) {
		return "", refuse("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", s.Types[i].Name, zone)
	}
	if form.Get("InstanceMarketOptions.MarketType") == "spot" {
		return zone, s.checkSpot(s.Types[i].Name, zone, form.Get("InstanceMarketOptions.SpotOptions.MaxPrice"))
	}
	return zone, nil
}

func (s *Server) checkSpot(kind, zone, limit string) *failure {
	if limit == "" {
		return nil
	}
	most, err := strconv.ParseFloat(limit, 64)
	if err != nil || most < minSpotPrice {
		return refuse("InvalidParameterValue", "Invalid value '%s' for SpotPrice.", limit)
	}
	var present SpotPrice
	for _, p := range s.Prices {
		if p.Type == kind && p.Zone == zone && p.Since.After(present.Since) {
			present = p
		}
	}
	if price, _ := strconv.ParseFloat(present.Price, 64); price > most {
		return refuse("SpotMaxPriceTooLow", "Your Spot request price of %s is lower than the minimum required Spot request fulfillment price of %s.", limit, present.Price)
	}
	return nil
}

// visible returns the records that fit the filters of a call and are listed at this time.
func (s *Server) visible(form url.Values) ([]*Instance, *failure) {
	wanted := filters(form)
	var all []*Instance
	for _, one := range s.instances {
		name, _ := s.state(one)
		_, ended := s.interrupted(one)
		if !one.Ended.IsZero() {
			ended = one.Ended
		}
		if s.Now().Before(one.Launched.Add(s.VisibleAfter)) || name == "terminated" && s.Now().After(ended.Add(lifetimeOfRecords)) {
			continue
		}
		fits := true
		for filter, values := range wanted {
			has, ok := one.filtered(filter)
			if !ok {
				return nil, refuse("InvalidParameterValue", "The filter '%s' is invalid", filter)
			}
			fits = fits && slices.Contains(values, has)
		}
		if fits {
			all = append(all, one)
		}
	}
	return all, nil
}

// filtered returns the value that a filter compares.
func (i *Instance) filtered(filter string) (string, bool) {
	switch {
	case filter == "instance-id":
		return i.ID, true
	case filter == "client-token":
		return i.Token, true
	case len(filter) > 4 && filter[:4] == "tag:":
		return i.Tags[filter[4:]], true
	}
	return "", false
}

type describeInstancesResponse struct {
	XMLName      xml.Name          `xml:"DescribeInstancesResponse"`
	Reservations []wireReservation `xml:"reservationSet>item"`
	Next         string            `xml:"nextToken,omitempty"`
}

func (s *Server) describeInstances(form url.Values) (any, *failure) {
	all, failed := s.visible(form)
	if failed != nil {
		return nil, failed
	}
	part, next := page(s, form, all)
	out := describeInstancesResponse{Next: next}
	for _, one := range part {
		out.Reservations = append(out.Reservations, wireReservation{"r-" + one.ID, s.OwnerID, []wireInstance{s.wire(one)}})
	}
	return out, nil
}

type wireStateChange struct {
	ID    string    `xml:"instanceId"`
	State wireState `xml:"currentState"`
}

type terminateInstancesResponse struct {
	XMLName   xml.Name          `xml:"TerminateInstancesResponse"`
	Instances []wireStateChange `xml:"instancesSet>item"`
}

// terminateInstances ends all instances of a call, or none if one is unknown.
func (s *Server) terminateInstances(form url.Values) (any, *failure) {
	var ending []*Instance
	for _, id := range list(form, "InstanceId") {
		i := slices.IndexFunc(s.instances, func(one *Instance) bool { return one.ID == id })
		if i < 0 {
			return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
		if s.instances[i].Protected {
			return nil, refuse("OperationNotPermitted", "The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", id)
		}
		ending = append(ending, s.instances[i])
	}
	var out terminateInstancesResponse
	for _, one := range ending {
		if one.Ended.IsZero() {
			one.Ended = s.Now()
		}
		name, _ := s.state(one)
		out.Instances = append(out.Instances, wireStateChange{one.ID, wireState{states[name], name}})
	}
	return out, nil
}

type getConsoleOutputResponse struct {
	XMLName xml.Name `xml:"GetConsoleOutputResponse"`
	ID      string   `xml:"instanceId"`
	Output  string   `xml:"output"`
}

func (s *Server) getConsoleOutput(form url.Values) (any, *failure) {
	for _, one := range s.instances {
		if one.ID == form.Get("InstanceId") {
			text := "booting " + one.Type + "\n" + one.ID + " login:"
			return getConsoleOutputResponse{ID: one.ID, Output: base64.StdEncoding.EncodeToString([]byte(text))}, nil
		}
	}
	return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", form.Get("InstanceId"))
}
