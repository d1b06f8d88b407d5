"""Fields of the core/v1 messages; the notation is explained in ``wire_types``.

Source: the published Kubernetes API types, v1.35.
"""

from __future__ import annotations

CORE = """
AWSElasticBlockStoreVolumeSource: volumeID=1s! fsType=2s partition=3i readOnly=4b
Affinity: nodeAffinity=1NodeAffinity? podAffinity=2PodAffinity? podAntiAffinity=3PodAntiAffinity?
AppArmorProfile: type=1s! localhostProfile=2s?
AttachedVolume: name=1s! devicePath=2s!
AzureDiskVolumeSource: diskName=1s! diskURI=2s! cachingMode=3s? fsType=4s? readOnly=5b? kind=6s?
AzureFileVolumeSource: secretName=1s! shareName=2s! readOnly=3b
Binding: metadata=1ObjectMeta target=2ObjectReference
CSIVolumeSource: driver=1s! readOnly=2b? fsType=3s? volumeAttributes=4%s
  nodePublishSecretRef=5LocalObjectReference?
Capabilities: add=1*s drop=2*s
CephFSVolumeSource: monitors=1*s path=2s user=3s secretFile=4s secretRef=5LocalObjectReference?
  readOnly=6b
CinderVolumeSource: volumeID=1s! fsType=2s readOnly=3b secretRef=4LocalObjectReference?
ClientIPConfig: timeoutSeconds=1i?
ClusterTrustBundleProjection: name=1s? signerName=2s? labelSelector=3LabelSelector? optional=5b? path=4s!
ConfigMap: metadata=1ObjectMeta immutable=4b? data=2%s binaryData=3%y
ConfigMapEnvSource: ~=1LocalObjectReference optional=2b?
ConfigMapKeySelector: ~=1LocalObjectReference key=2s! optional=3b?
ConfigMapNodeConfigSource: namespace=1s! name=2s! uid=3s resourceVersion=4s kubeletConfigKey=5s!
ConfigMapProjection: ~=1LocalObjectReference items=2*KeyToPath optional=4b?
ConfigMapVolumeSource: ~=1LocalObjectReference items=2*KeyToPath defaultMode=3i? optional=4b?
Container: name=1s! image=2s command=3*s args=4*s workingDir=5s ports=6*ContainerPort@containerPort
  envFrom=19*EnvFromSource env=7*EnvVar@name resources=8ResourceRequirements
  resizePolicy=23*ContainerResizePolicy restartPolicy=24s? restartPolicyRules=25*ContainerRestartRule
  volumeMounts=9*VolumeMount@mountPath volumeDevices=21*VolumeDevice@devicePath livenessProbe=10Probe?
  readinessProbe=11Probe? startupProbe=22Probe? lifecycle=12Lifecycle? terminationMessagePath=13s
  terminationMessagePolicy=20s imagePullPolicy=14s securityContext=15SecurityContext? stdin=16b
  stdinOnce=17b tty=18b
ContainerExtendedResourceRequest: containerName=1s! resourceName=2s! requestName=3s!
ContainerImage: names=1*s sizeBytes=2i
ContainerPort: name=1s hostPort=2i containerPort=3i! protocol=4s hostIP=5s
ContainerResizePolicy: resourceName=1s! restartPolicy=2s!
ContainerRestartRule: action=1s exitCodes=2ContainerRestartRuleOnExitCodes?
ContainerRestartRuleOnExitCodes: operator=1s values=2*i
ContainerState: waiting=1ContainerStateWaiting? running=2ContainerStateRunning?
  terminated=3ContainerStateTerminated?
ContainerStateRunning: startedAt=1T
ContainerStateTerminated: exitCode=1i! signal=2i reason=3s message=4s startedAt=5T finishedAt=6T
  containerID=7s
ContainerStateWaiting: reason=1s message=2s
ContainerStatus: name=1s! state=2ContainerState lastState=3ContainerState ready=4b! restartCount=5i!
  image=6s! imageID=7s! containerID=8s started=9b? allocatedResources=10%Q
  resources=11ResourceRequirements? volumeMounts=12*VolumeMountStatus@mountPath user=13ContainerUser?
  allocatedResourcesStatus=14*ResourceStatus@name stopSignal=15s?
ContainerUser: linux=1LinuxContainerUser?
DaemonEndpoint: Port=1i!
DownwardAPIProjection: items=1*DownwardAPIVolumeFile
DownwardAPIVolumeFile: path=1s! fieldRef=2ObjectFieldSelector? resourceFieldRef=3ResourceFieldSelector?
  mode=4i?
DownwardAPIVolumeSource: items=1*DownwardAPIVolumeFile defaultMode=2i?
EmptyDirVolumeSource: medium=1s sizeLimit=2Q?
EndpointAddress: ip=1s! hostname=3s nodeName=4s? targetRef=2ObjectReference?
EndpointPort: name=1s port=2i! protocol=3s appProtocol=4s?
EndpointSubset: addresses=1*EndpointAddress notReadyAddresses=2*EndpointAddress ports=3*EndpointPort
Endpoints: metadata=1ObjectMeta subsets=2*EndpointSubset
EnvFromSource: prefix=1s configMapRef=2ConfigMapEnvSource? secretRef=3SecretEnvSource?
EnvVar: name=1s! value=2s valueFrom=3EnvVarSource?
EnvVarSource: fieldRef=1ObjectFieldSelector? resourceFieldRef=2ResourceFieldSelector?
  configMapKeyRef=3ConfigMapKeySelector? secretKeyRef=4SecretKeySelector? fileKeyRef=5FileKeySelector?
EphemeralContainer: ~=1EphemeralContainerCommon targetContainerName=2s
EphemeralContainerCommon: name=1s! image=2s command=3*s args=4*s workingDir=5s
  ports=6*ContainerPort@containerPort envFrom=19*EnvFromSource env=7*EnvVar@name
  resources=8ResourceRequirements resizePolicy=23*ContainerResizePolicy restartPolicy=24s?
  restartPolicyRules=25*ContainerRestartRule volumeMounts=9*VolumeMount@mountPath
  volumeDevices=21*VolumeDevice@devicePath livenessProbe=10Probe? readinessProbe=11Probe?
  startupProbe=22Probe? lifecycle=12Lifecycle? terminationMessagePath=13s terminationMessagePolicy=20s
  imagePullPolicy=14s securityContext=15SecurityContext? stdin=16b stdinOnce=17b tty=18b
EphemeralVolumeSource: volumeClaimTemplate=1PersistentVolumeClaimTemplate?
Event: metadata=1ObjectMeta involvedObject=2ObjectReference reason=3s message=4s source=5EventSource
  firstTimestamp=6T lastTimestamp=7T count=8i type=9s eventTime=10M series=11EventSeries? action=12s
  related=13ObjectReference? reportingComponent=14s! reportingInstance=15s!
EventSeries: count=1i lastObservedTime=2M
EventSource: component=1s host=2s
ExecAction: command=1*s
FCVolumeSource: targetWWNs=1*s lun=2i? fsType=3s readOnly=4b wwids=5*s
FileKeySelector: volumeName=1s! path=2s! key=3s! optional=4b?
FlexVolumeSource: driver=1s! fsType=2s secretRef=3LocalObjectReference? readOnly=4b options=5%s
FlockerVolumeSource: datasetName=1s datasetUUID=2s
GCEPersistentDiskVolumeSource: pdName=1s! fsType=2s partition=3i readOnly=4b
GRPCAction: port=1i! service=2s?
GitRepoVolumeSource: repository=1s! revision=2s directory=3s
GlusterfsVolumeSource: endpoints=1s! path=2s! readOnly=3b
HTTPGetAction: path=1s port=2I host=3s scheme=4s httpHeaders=5*HTTPHeader
HTTPHeader: name=1s! value=2s!
HostAlias: ip=1s! hostnames=2*s
HostIP: ip=1s!
HostPathVolumeSource: path=1s! type=2s?
ISCSIVolumeSource: targetPortal=1s! iqn=2s! lun=3i! iscsiInterface=4s fsType=5s readOnly=6b portals=7*s
  chapAuthDiscovery=8b chapAuthSession=11b secretRef=10LocalObjectReference? initiatorName=12s?
ImageVolumeSource: reference=1s pullPolicy=2s
KeyToPath: key=1s! path=2s! mode=3i?
Lifecycle: postStart=1LifecycleHandler? preStop=2LifecycleHandler? stopSignal=3s?
LifecycleHandler: exec=1ExecAction? httpGet=2HTTPGetAction? tcpSocket=3TCPSocketAction?
  sleep=4SleepAction?
LinuxContainerUser: uid=1i! gid=2i! supplementalGroups=3*i
LoadBalancerIngress: ip=1s hostname=2s ipMode=3s? ports=4*PortStatus
LoadBalancerStatus: ingress=1*LoadBalancerIngress
LocalObjectReference: name=1s
NFSVolumeSource: server=1s! path=2s! readOnly=3b
Namespace: metadata=1ObjectMeta spec=2NamespaceSpec status=3NamespaceStatus
NamespaceCondition: type=1s! status=2s! lastTransitionTime=4T reason=5s message=6s
NamespaceSpec: finalizers=1*s
NamespaceStatus: phase=1s conditions=2*NamespaceCondition@type
Node: metadata=1ObjectMeta spec=2NodeSpec status=3NodeStatus
NodeAddress: type=1s! address=2s!
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution=1NodeSelector?
  preferredDuringSchedulingIgnoredDuringExecution=2*PreferredSchedulingTerm
NodeCondition: type=1s! status=2s! lastHeartbeatTime=3T lastTransitionTime=4T reason=5s message=6s
NodeConfigSource: configMap=2ConfigMapNodeConfigSource?
NodeConfigStatus: assigned=1NodeConfigSource? active=2NodeConfigSource? lastKnownGood=3NodeConfigSource?
  error=4s
NodeDaemonEndpoints: kubeletEndpoint=1DaemonEndpoint
NodeFeatures: supplementalGroupsPolicy=1b?
NodeRuntimeHandler: name=1s! features=2NodeRuntimeHandlerFeatures?
NodeRuntimeHandlerFeatures: recursiveReadOnlyMounts=1b? userNamespaces=2b?
NodeSelector: nodeSelectorTerms=1*NodeSelectorTerm
NodeSelectorRequirement: key=1s! operator=2s! values=3*s
NodeSelectorTerm: matchExpressions=1*NodeSelectorRequirement matchFields=2*NodeSelectorRequirement
NodeSpec: podCIDR=1s podCIDRs=7*s@ providerID=3s unschedulable=4b taints=5*Taint
  configSource=6NodeConfigSource? externalID=2s
NodeStatus: capacity=1%Q allocatable=2%Q phase=3s conditions=4*NodeCondition@type
  addresses=5*NodeAddress@type daemonEndpoints=6NodeDaemonEndpoints nodeInfo=7NodeSystemInfo
  images=8*ContainerImage volumesInUse=9*s volumesAttached=10*AttachedVolume config=11NodeConfigStatus?
  runtimeHandlers=12*NodeRuntimeHandler features=13NodeFeatures? declaredFeatures=14*s
NodeSwapStatus: capacity=1i?
NodeSystemInfo: machineID=1s! systemUUID=2s! bootID=3s! kernelVersion=4s! osImage=5s!
  containerRuntimeVersion=6s! kubeletVersion=7s! kubeProxyVersion=8s! operatingSystem=9s!
  architecture=10s! swap=11NodeSwapStatus?
ObjectFieldSelector: apiVersion=1s fieldPath=2s!
ObjectReference: kind=1s namespace=2s name=3s uid=4s apiVersion=5s resourceVersion=6s fieldPath=7s
PersistentVolumeClaimSpec: accessModes=1*s selector=4LabelSelector? resources=2VolumeResourceRequirements
  volumeName=3s storageClassName=5s? volumeMode=6s? dataSource=7TypedLocalObjectReference?
  dataSourceRef=8TypedObjectReference? volumeAttributesClassName=9s?
PersistentVolumeClaimTemplate: metadata=1ObjectMeta spec=2PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName=1s! readOnly=2b
PhotonPersistentDiskVolumeSource: pdID=1s! fsType=2s
Pod: metadata=1ObjectMeta spec=2PodSpec status=3PodStatus
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution=1*PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution=2*WeightedPodAffinityTerm
PodAffinityTerm: labelSelector=1LabelSelector? namespaces=2*s topologyKey=3s!
  namespaceSelector=4LabelSelector? matchLabelKeys=5*s mismatchLabelKeys=6*s
PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution=1*PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution=2*WeightedPodAffinityTerm
PodCertificateProjection: signerName=1s keyType=2s maxExpirationSeconds=3i? credentialBundlePath=4s
  keyPath=5s certificateChainPath=6s userAnnotations=7%s
PodCondition: type=1s! observedGeneration=7i status=2s! lastProbeTime=3T lastTransitionTime=4T reason=5s
  message=6s
PodDNSConfig: nameservers=1*s searches=2*s options=3*PodDNSConfigOption
PodDNSConfigOption: name=1s value=2s?
PodExtendedResourceClaimStatus: requestMappings=1*ContainerExtendedResourceRequest resourceClaimName=2s!
PodIP: ip=1s!
PodOS: name=1s!
PodReadinessGate: conditionType=1s!
PodResourceClaim: name=1s! resourceClaimName=3s? resourceClaimTemplateName=4s?
PodResourceClaimStatus: name=1s! resourceClaimName=2s?
PodSchedulingGate: name=1s!
PodSecurityContext: seLinuxOptions=1SELinuxOptions? windowsOptions=8WindowsSecurityContextOptions?
  runAsUser=2i? runAsGroup=6i? runAsNonRoot=3b? supplementalGroups=4*i supplementalGroupsPolicy=12s?
  fsGroup=5i? sysctls=7*Sysctl fsGroupChangePolicy=9s? seccompProfile=10SeccompProfile?
  appArmorProfile=11AppArmorProfile? seLinuxChangePolicy=13s?
PodSpec: volumes=1*Volume@name^ initContainers=20*Container@name containers=2*Container@name
  ephemeralContainers=34*EphemeralContainer@name restartPolicy=3s terminationGracePeriodSeconds=4i?
  activeDeadlineSeconds=5i? dnsPolicy=6s nodeSelector=7%s serviceAccountName=8s serviceAccount=9s
  automountServiceAccountToken=21b? nodeName=10s hostNetwork=11b hostPID=12b hostIPC=13b
  shareProcessNamespace=27b? securityContext=14PodSecurityContext?
  imagePullSecrets=15*LocalObjectReference@name hostname=16s subdomain=17s affinity=18Affinity?
  schedulerName=19s tolerations=22*Toleration hostAliases=23*HostAlias@ip priorityClassName=24s
  priority=25i? dnsConfig=26PodDNSConfig? readinessGates=28*PodReadinessGate runtimeClassName=29s?
  enableServiceLinks=30b? preemptionPolicy=31s? overhead=32%Q
  topologySpreadConstraints=33*TopologySpreadConstraint@topologyKey setHostnameAsFQDN=35b? os=36PodOS?
  hostUsers=37b? schedulingGates=38*PodSchedulingGate@name resourceClaims=39*PodResourceClaim@name^
  resources=40ResourceRequirements? hostnameOverride=41s? workloadRef=42WorkloadReference?
PodStatus: observedGeneration=17i phase=1s conditions=2*PodCondition@type message=3s reason=4s
  nominatedNodeName=11s hostIP=5s hostIPs=16*HostIP@ip podIP=6s podIPs=12*PodIP@ip startTime=7T?
  initContainerStatuses=10*ContainerStatus containerStatuses=8*ContainerStatus qosClass=9s
  ephemeralContainerStatuses=13*ContainerStatus resize=14s
  resourceClaimStatuses=15*PodResourceClaimStatus@name^
  extendedResourceClaimStatus=18PodExtendedResourceClaimStatus? allocatedResources=19%Q
  resources=20ResourceRequirements?
PodTemplateSpec: metadata=1ObjectMeta spec=2PodSpec
PortStatus: port=1i! protocol=2s! error=3s?
PortworxVolumeSource: volumeID=1s! fsType=2s readOnly=3b
PreferredSchedulingTerm: weight=1i! preference=2NodeSelectorTerm
Probe: ~=1ProbeHandler initialDelaySeconds=2i timeoutSeconds=3i periodSeconds=4i successThreshold=5i
  failureThreshold=6i terminationGracePeriodSeconds=7i?
ProbeHandler: exec=1ExecAction? httpGet=2HTTPGetAction? tcpSocket=3TCPSocketAction? grpc=4GRPCAction?
ProjectedVolumeSource: sources=1*VolumeProjection defaultMode=2i?
QuobyteVolumeSource: registry=1s! volume=2s! readOnly=3b user=4s group=5s tenant=6s
RBDVolumeSource: monitors=1*s image=2s! fsType=3s pool=4s user=5s keyring=6s
  secretRef=7LocalObjectReference? readOnly=8b
ResourceClaim: name=1s! request=2s
ResourceFieldSelector: containerName=1s resource=2s! divisor=3Q
ResourceHealth: resourceID=1s! health=2s
ResourceRequirements: limits=1%Q requests=2%Q claims=3*ResourceClaim
ResourceStatus: name=1s! resources=2*ResourceHealth
SELinuxOptions: user=1s role=2s type=3s level=4s
ScaleIOVolumeSource: gateway=1s! system=2s! secretRef=3LocalObjectReference? sslEnabled=4b
  protectionDomain=5s storagePool=6s storageMode=7s volumeName=8s fsType=9s readOnly=10b
SeccompProfile: type=1s! localhostProfile=2s?
Secret: metadata=1ObjectMeta immutable=5b? data=2%y stringData=4%s type=3s
SecretEnvSource: ~=1LocalObjectReference optional=2b?
SecretKeySelector: ~=1LocalObjectReference key=2s! optional=3b?
SecretProjection: ~=1LocalObjectReference items=2*KeyToPath optional=4b?
SecretVolumeSource: secretName=1s items=2*KeyToPath defaultMode=3i? optional=4b?
SecurityContext: capabilities=1Capabilities? privileged=2b? seLinuxOptions=3SELinuxOptions?
  windowsOptions=10WindowsSecurityContextOptions? runAsUser=4i? runAsGroup=8i? runAsNonRoot=5b?
  readOnlyRootFilesystem=6b? allowPrivilegeEscalation=7b? procMount=9s? seccompProfile=11SeccompProfile?
  appArmorProfile=12AppArmorProfile?
Service: metadata=1ObjectMeta spec=2ServiceSpec status=3ServiceStatus
ServiceAccount: metadata=1ObjectMeta secrets=2*ObjectReference@name
  imagePullSecrets=3*LocalObjectReference automountServiceAccountToken=4b?
ServiceAccountTokenProjection: audience=1s expirationSeconds=2i? path=3s!
ServicePort: name=1s protocol=2s appProtocol=6s? port=3i! targetPort=4I nodePort=5i
ServiceSpec: ports=1*ServicePort@port selector=2%s clusterIP=3s clusterIPs=18*s type=4s externalIPs=5*s
  sessionAffinity=7s loadBalancerIP=8s loadBalancerSourceRanges=9*s externalName=10s
  externalTrafficPolicy=11s healthCheckNodePort=12i publishNotReadyAddresses=13b
  sessionAffinityConfig=14SessionAffinityConfig? ipFamilies=19*s ipFamilyPolicy=17s?
  allocateLoadBalancerNodePorts=20b? loadBalancerClass=21s? internalTrafficPolicy=22s?
  trafficDistribution=23s?
ServiceStatus: loadBalancer=1LoadBalancerStatus conditions=2*Condition@type
SessionAffinityConfig: clientIP=1ClientIPConfig?
SleepAction: seconds=1i!
StorageOSVolumeSource: volumeName=1s volumeNamespace=2s fsType=3s readOnly=4b
  secretRef=5LocalObjectReference?
Sysctl: name=1s! value=2s!
TCPSocketAction: port=1I host=2s
Taint: key=1s! value=2s effect=3s! timeAdded=4T?
Toleration: key=1s operator=2s value=3s effect=4s tolerationSeconds=5i?
TopologySpreadConstraint: maxSkew=1i! topologyKey=2s! whenUnsatisfiable=3s! labelSelector=4LabelSelector?
  minDomains=5i? nodeAffinityPolicy=6s? nodeTaintsPolicy=7s? matchLabelKeys=8*s
TypedLocalObjectReference: apiGroup=1s? kind=2s! name=3s!
TypedObjectReference: apiGroup=1s? kind=2s! name=3s! namespace=4s?
Volume: name=1s! ~=2VolumeSource
VolumeDevice: name=1s! devicePath=2s!
VolumeMount: name=1s! readOnly=2b recursiveReadOnly=7s? mountPath=3s! subPath=4s mountPropagation=5s?
  subPathExpr=6s
VolumeMountStatus: name=1s! mountPath=2s! readOnly=3b recursiveReadOnly=4s?
VolumeProjection: secret=1SecretProjection? downwardAPI=2DownwardAPIProjection?
  configMap=3ConfigMapProjection? serviceAccountToken=4ServiceAccountTokenProjection?
  clusterTrustBundle=5ClusterTrustBundleProjection? podCertificate=6PodCertificateProjection?
VolumeResourceRequirements: limits=1%Q requests=2%Q
VolumeSource: hostPath=1HostPathVolumeSource? emptyDir=2EmptyDirVolumeSource?
  gcePersistentDisk=3GCEPersistentDiskVolumeSource?
  awsElasticBlockStore=4AWSElasticBlockStoreVolumeSource? gitRepo=5GitRepoVolumeSource?
  secret=6SecretVolumeSource? nfs=7NFSVolumeSource? iscsi=8ISCSIVolumeSource?
  glusterfs=9GlusterfsVolumeSource? persistentVolumeClaim=10PersistentVolumeClaimVolumeSource?
  rbd=11RBDVolumeSource? flexVolume=12FlexVolumeSource? cinder=13CinderVolumeSource?
  cephfs=14CephFSVolumeSource? flocker=15FlockerVolumeSource? downwardAPI=16DownwardAPIVolumeSource?
  fc=17FCVolumeSource? azureFile=18AzureFileVolumeSource? configMap=19ConfigMapVolumeSource?
  vsphereVolume=20VsphereVirtualDiskVolumeSource? quobyte=21QuobyteVolumeSource?
  azureDisk=22AzureDiskVolumeSource? photonPersistentDisk=23PhotonPersistentDiskVolumeSource?
  projected=26ProjectedVolumeSource? portworxVolume=24PortworxVolumeSource? scaleIO=25ScaleIOVolumeSource?
  storageos=27StorageOSVolumeSource? csi=28CSIVolumeSource? ephemeral=29EphemeralVolumeSource?
  image=30ImageVolumeSource?
VsphereVirtualDiskVolumeSource: volumePath=1s! fsType=2s storagePolicyName=3s storagePolicyID=4s
WeightedPodAffinityTerm: weight=1i! podAffinityTerm=2PodAffinityTerm
WindowsSecurityContextOptions: gmsaCredentialSpecName=1s? gmsaCredentialSpec=2s? runAsUserName=3s?
  hostProcess=4b?
WorkloadReference: name=1s! podGroup=2s! podGroupReplicaKey=3s
"""
