package cluster

// Instance is an instance at the cloud with the tag of the cluster, as the provider reports it. Money is in millionths of
// the policy's currency.
type Instance struct {
	ID          string
	Launch      LeaseID
	Try         uint32
	Terminated  bool // it costs nothing more
	Type        string
	Address     string
	Price       int64 // of an hour; 0: unknown
	Launched    Instant
	Reclaim     Instant // deadline of the notice that the cloud takes it back; 0 without one
	Interrupted bool    // the cloud took it back
	Cost        int64   // once it is terminated; -1: unknown
}
