package burst

import "time"

// Version is the version of the contract.
const Version = 1

// The words that a provider program is called with.
const (
	CallOffers    = "offers"
	CallLaunch    = "launch"
	CallList      = "list"
	CallTerminate = "terminate"
	CallConsole   = "console"
	CallValidate  = "validate"
	CallIdentify  = "identify"
)

// The exit statuses of a provider program.
const (
	ExitOK        = 0
	ExitPermanent = 1  // the call failed; the kind of Answer.Error decides whether it is repeated
	ExitTryLater  = 75 // the outcome may be unknown: the same call is repeated
)

// Question is what every call gets. Fields that a call does not need are absent.
type Question struct {
	Version  int       `json:"version"`
	Cluster  string    `json:"cluster"`  // ID of the cluster: a tag of every instance
	Deadline time.Time `json:"deadline"` // the program is killed then

	Launch    *LaunchQuestion   `json:"launch,omitempty"`
	Instances []string          `json:"instances,omitempty"` // of terminate, and the one of console
	Identity  *IdentityQuestion `json:"identity,omitempty"`
}

// LaunchQuestion asks for instances: all of them or none.
type LaunchQuestion struct {
	// ClientToken identifies the request: a repeated call with the same token returns the same instances and starts none.
	// At most 64 ASCII characters.
	ClientToken string `json:"client_token"`
	Launch      uint64 `json:"launch"` // a tag of each instance
	Try         uint32 `json:"try"`    // a tag of each instance
	Nodes       int    `json:"nodes"`
	Offer       string `json:"offer"`
	Type        string `json:"type"`
	Region      string `json:"region"`
	Market      string `json:"market"` // spot or on-demand
	// MaxPrice is the highest price of an hour of one instance, as a decimal number: the cloud must refuse a higher one.
	MaxPrice string `json:"max_price"`
	// LifetimeSeconds is when each instance ends by itself at the latest, counted from its start.
	LifetimeSeconds int64 `json:"lifetime_seconds"`
	// UserData is passed to each instance. The instance gives it to "gctl join --lease".
	UserData UserData `json:"user_data"`
}

// UserData is what an instance needs to join the cluster.
type UserData struct {
	Cluster         string   `json:"cluster"`
	Launch          uint64   `json:"launch"`
	Controllers     []string `json:"controllers"` // HOST:PORT
	Token           string   `json:"token"`       // join token of the launch; it contains the hash of the CA
	LifetimeSeconds int64    `json:"lifetime_seconds"`
}

// Answer is what every call writes. With exit status 0 there is no Error.
type Answer struct {
	Error     *Failure   `json:"error,omitempty"`
	Currency  string     `json:"currency,omitempty"` // of offers
	Offers    []Offer    `json:"offers,omitempty"`
	Instances []Instance `json:"instances,omitempty"` // of launch, list and terminate
	Console   string     `json:"console,omitempty"`   // the end of the console output
	Problems  []string   `json:"problems,omitempty"`  // of validate: empty when the program can work
}

// The kinds of failures.
const (
	FailureCapacity  = "capacity"   // the cloud has none of the offer now
	FailureQuota     = "quota"      // a limit of the account at the cloud
	FailureDenied    = "denied"     // missing permission or bad credentials
	FailureInvalid   = "invalid"    // the request can never succeed
	FailureThrottled = "throttled"  // too many calls: try later
	FailureTryLater  = "try_later"  // any other reason to try later
	FailurePrice     = "price"      // the price is above max_price
	FailureNotFound  = "not_found"  // an unknown offer or region
	FailureMismatch  = "mismatched" // the client token was used with other arguments
	FailureNotProved = "not_proved" // the identity document does not prove what the host says
)

// Failure says why a call failed.
type Failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// Offer is the price of one kind of instance.
type Offer struct {
	Name            string    `json:"name"`
	Market          string    `json:"market"`
	Type            string    `json:"type"`
	Region          string    `json:"region"`
	Price           string    `json:"price"` // of an hour, as a decimal number
	PricedAt        time.Time `json:"priced_at"`
	CPUs            int32     `json:"cpus"`
	MemoryBytes     int64     `json:"memory_bytes"`
	GPUs            int32     `json:"gpus"`
	GPUType         string    `json:"gpu_type,omitempty"`
	GPUMemoryBytes  int64     `json:"gpu_memory_bytes,omitempty"`
	BootSeconds     int64     `json:"boot_seconds"`               // 90th percentile until the node has joined
	InterruptionPPM int32     `json:"interruption_ppm,omitempty"` // probability of a reclaim within an hour, in millionths
}

// The states of an instance.
const (
	StatePending    = "pending"
	StateRunning    = "running"
	StateEnding     = "ending"     // it runs no longer and will be terminated
	StateTerminated = "terminated" // it costs nothing more
)

// Instance is an instance with the tag of the cluster. A program may leave out terminated ones after an hour.
type Instance struct {
	ID         string    `json:"id"`
	Cluster    string    `json:"cluster"`
	Launch     uint64    `json:"launch"`
	Try        uint32    `json:"try"`
	State      string    `json:"state"`
	Type       string    `json:"type,omitempty"`
	Address    string    `json:"address,omitempty"`
	Price      string    `json:"price,omitempty"` // of an hour
	LaunchedAt time.Time `json:"launched_at"`
	// ReclaimAt is the deadline of a notice that the cloud takes the instance back; zero without one.
	ReclaimAt time.Time `json:"reclaim_at,omitzero"`
	// Interrupted says that the cloud took the instance back.
	Interrupted bool `json:"interrupted,omitempty"`
	// Cost is what it cost, once it is terminated and the program knows; else the price times the time is assumed.
	Cost string `json:"cost,omitempty"`
}
