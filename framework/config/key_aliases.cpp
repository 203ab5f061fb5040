// What users of other tools type for a key of this configuration, or for a value.
#include <algorithm>

#include "config/fields.h"

namespace tfm::config {
namespace {

struct AliasRow {
  std::string_view keys, words;  // separated by spaces; the likeliest key first
};
struct ValueRow {
  std::string_view key, value, words;
};
struct MissingRow {
  std::string_view feature, words;
};

constexpr AliasRow kAliases[] = {
    {"optimizer.lr", "learning_rate max_lr peak_lr base_lr learningrate step_size"},
    {"optimizer.betas", "beta beta1 beta2 beta_1 beta_2 adam_beta1 adam_beta2 adam_betas"},
    {"optimizer.eps model.norm_eps", "epsilon adam_eps adam_epsilon"},
    {"model.norm_eps",
     "layer_norm_eps layer_norm_epsilon layernorm_epsilon rms_norm_eps rms_norm_epsilon "
     "layernorm_eps"},
    {"optimizer.grad_clip",
     "clip_grad max_grad_norm gradient_clipping gradient_clip_val clip_norm clip grad_norm"},
    {"optimizer.weight_decay", "wd decay l2"},
    {"schedule.min_lr", "lr_min eta_min final_lr end_lr"},
    {"schedule.warmup_steps",
     "warmup warmup_iters lr_warmup_iters lr_warmup_steps num_warmup_steps warmup_ratio"},
    {"schedule.decay_steps", "lr_decay_iters decay_iters lr_decay_steps"},
    {"schedule", "lr_scheduler scheduler lr_schedule"},
    {"schedule.type", "lr_scheduler_type lr_decay_style"},
    {"optimizer", "optim"},
    {"model.d_model",
     "hidden_size n_embd dim hidden_dim embed_dim d_embed model_dim width embedding_dim"},
    {"model.n_layers", "num_layers num_hidden_layers n_layer layers depth"},
    {"model.n_heads", "num_attention_heads num_heads n_head"},
    {"model.n_kv_heads", "num_key_value_heads num_query_groups num_kv_heads kv_heads n_kv_head"},
    {"model.d_head", "head_dim kv_channels head_size d_kv"},
    {"model.d_ff",
     "ffn_dim intermediate_size ffn_hidden_size n_inner ff_dim d_ffn d_inner mlp_dim hidden_ff"},
    {"train.seq_len model.max_seq_len",
     "seq_length sequence_length block_size context_length max_length seqlen"},
    {"model.max_seq_len", "max_position_embeddings n_positions n_ctx max_sequence_length max_len"},
    {"model.vocab_size", "padded_vocab_size n_vocab vocab num_embeddings"},
    {"model.position", "position_embedding_type pos_emb positional_encoding pos_encoding"},
    {"model.rope.theta", "rope_theta rotary_base rope_base"},
    {"model.rope.scaling", "rope_scaling"},
    {"model.rope.scaling.original_max_seq_len", "original_max_position_embeddings"},
    {"model.norm", "normalization norm_type"},
    {"model.activation", "hidden_act activation_function act act_fn activation_fn"},
    {"model.bias", "use_bias add_bias_linear attention_bias"},
    {"model.ffn_bias", "mlp_bias add_ffn_bias"},
    {"model.qkv_bias", "add_qkv_bias attention_qkv_bias"},
    {"model.qk_norm", "use_qk_norm qk_layernorm qk_layer_norm query_key_norm"},
    {"model.attention.q_rank", "q_lora_rank"},
    {"model.attention.kv_rank", "kv_lora_rank"},
    {"model.attention.rope_size", "qk_rope_head_dim qk_pos_emb_head_dim"},
    {"model.attention.value_size", "v_head_dim linear_value_head_dim"},
    {"model.attention.key_heads", "linear_num_key_heads"},
    {"model.attention.convolution", "linear_conv_kernel_dim"},
    {"model.attention.window", "sliding_window window_size attention_window local_attention"},
    {"model.attention.softcap model.softcap",
     "attn_logit_softcapping attn_logit_softcap logit_cap soft_cap"},
    {"model.softcap", "final_logit_softcapping final_logit_softcap output_softcap"},
    {"model.attention.query_scalar", "query_pre_attn_scalar attention_scale softmax_scale"},
    {"model.norm_plus_one",
     "zero_centered_gamma layernorm_zero_centered_gamma apply_layernorm_1p add_unit_offset"},
    {"model.experts", "moe mixture_of_experts"},
    {"model.experts.count", "num_experts n_experts num_local_experts n_routed_experts"},
    {"model.experts.top_k", "num_experts_per_tok moe_router_topk moe_top_k"},
    {"model.experts.d_ff", "moe_intermediate_size moe_ffn_hidden_size moe_d_ff"},
    {"model.experts.shared", "n_shared_experts num_shared_experts"},
    {"model.experts.groups", "n_group num_expert_group moe_router_num_groups"},
    {"model.experts.top_groups", "topk_group moe_router_group_topk"},
    {"model.experts.balance.rate", "moe_router_bias_update_rate bias_update_speed"},
    {"model.experts.balance.coefficient", "router_aux_loss_coef moe_aux_loss_coeff aux_loss_coef"},
    {"model.experts.capacity_factor", "moe_expert_capacity_factor expert_capacity_factor"},
    {"model.experts.z_loss", "router_z_loss_coef moe_z_loss_coeff"},
    {"model.tie_embeddings", "tie_word_embeddings weight_tying tied_embeddings share_embeddings"},
    {"model.heads", "num_labels num_classes classifier classes head"},
    {"model.family", "model_type architecture arch"},
    {"model.preset", "name model_name size"},
    {"model.dropout",
     "hidden_dropout hidden_dropout_prob drop p_dropout dropout_rate dropout_prob"},
    {"model.dropout.attention",
     "attention_dropout attn_dropout attn_pdrop attention_probs_dropout_prob attn"},
    {"model.dropout.embedding", "embedding_dropout embd_pdrop emb_dropout"},
    {"model.dropout.residual", "resid_pdrop residual_dropout resid_dropout resid"},
    {"model.dropout.ffn", "activation_dropout relu_dropout ffn_dropout mlp_dropout mlp"},
    {"train.global_batch_size", "batch_size batch total_batch_size train_batch_size n_batch"},
    {"train.micro_batch_size",
     "per_device_train_batch_size micro_batch mbs device_batch_size "
     "gradient_accumulation_steps grad_accum_steps"},
    {"train.steps",
     "max_steps train_iters max_iters num_steps iterations total_steps n_steps train_steps "
     "num_iterations"},
    {"train.seed", "random_seed manual_seed rng_seed"},
    {"parallel.data", "dp data_parallel data_parallel_size dp_size replicas"},
    {"parallel.tensor",
     "tp tensor_parallel tensor_model_parallel_size tensor_parallel_size tp_size model_parallel"},
    {"parallel.pipeline", "pp pipeline_parallel pipeline_model_parallel_size pp_size"},
    {"parallel.context", "cp context_parallel context_parallel_size cp_size"},
    {"parallel.context_exchange", "cp_comm_type"},
    {"parallel.expert",
     "expert_parallel ep expert_model_parallel_size expert_parallel_size ep_size"},
    {"parallel.sequence", "sp sequence_parallel"},
    {"parallel.zero", "zero_stage zero_optimization stage use_distributed_optimizer"},
    {"parallel.backend",
     "dist_backend distributed_backend ddp_backend communication_backend process_group_backend"},
    {"parallel", "parallelism distributed"},
    {"precision", "dtype mixed_precision bf16 fp16 amp torch_dtype"},
    {"recompute",
     "activation_checkpointing gradient_checkpointing recompute_granularity recompute_activations "
     "checkpointing"},
    {"recompute_layers", "recompute_num_layers checkpoint_num_layers"},
    {"loss.label_smoothing", "label_smoothing_factor smoothing"},
    {"data.validation eval", "valid val dev val_data valid_data"},
    {"data.tokenizer", "tokenizer_path tokenizer_model tokenizer_name vocab_file"},
    {"data.train.path", "data_path file files paths glob train_data"},
    {"data.train.field", "text_column column json_key text_field"},
    {"eval.every checkpoint.every", "eval_interval eval_steps eval_every interval"},
    {"eval.batches", "eval_iters max_eval_batches"},
    {"eval.beam", "num_beams beam_size beams"},
    {"eval.stop", "early_stopping early_stop"},
    {"eval.stop.patience", "early_stopping_patience"},
    {"checkpoint.every",
     "save_interval save_steps save_every checkpoint_interval checkpoint_every"},
    {"checkpoint.dir", "save output_dir out_dir save_dir path checkpoint_dir ckpt_dir"},
    {"checkpoint.keep", "save_total_limit keep_last keep_latest"},
    {"checkpoint.resume", "load resume_from resume_from_checkpoint init_from"},
    {"checkpoint", "ckpt checkpoints"},
    {"metrics.log_every", "log_interval logging_steps log_steps"},
    {"metrics", "logging log logger monitoring"},
    {"run.name", "run_name experiment_name exp_name"},
};

constexpr ValueRow kValues[] = {
    {"precision", "fp16", "float16 half 16 f16 16_mixed fp16_mixed 16_true"},
    {"precision", "bf16", "bfloat16 bf16_mixed bf16_true bfloat"},
    {"precision", "fp32", "float32 float 32 f32 single full fp32_true 32_true"},
    {"device", "cuda", "gpu nvidia cuda:0"},
    {"model.family", "decoder", "gpt gpt2 llama causal_lm decoder_only"},
    {"model.family", "encoder", "bert masked_lm encoder_only"},
    {"model.family", "encoder_decoder", "t5 bart seq2seq transformer"},
    {"model.preset", "gpt2-124m", "gpt2 gpt2_small gpt2_base gpt"},
    {"model.preset", "gpt2-350m", "gpt2_medium"},
    {"model.preset", "gpt2-774m", "gpt2_large"},
    {"model.preset", "gpt2-1.5b", "gpt2_xl"},
    {"model.preset", "llama-1b", "llama llama3 llama_3 llama_3.2_1b"},
    {"model.preset", "llama-8b", "llama_3.1_8b llama_3_8b"},
    {"model.preset", "gemma2-2b", "gemma_2_2b gemma2_2b"},
    {"model.preset", "bert-base", "bert bert_base_uncased"},
    {"model.preset", "bert-large", "bert_large_uncased"},
    {"model.preset", "t5-base", "t5"},
    {"model.preset", "transformer-base", "transformer"},
    {"model.position", "rope", "rotary rotary_embedding rotary_position_embedding"},
    {"model.position", "learned", "absolute learned_absolute"},
    {"model.activation", "gelu_tanh", "gelu_new gelu_pytorch_tanh gelu_fast"},
    {"model.activation", "silu", "swish"},
    {"recompute", "full", "true on"},
    {"recompute", "none", "false off"},
};

constexpr MissingRow kMissing[] = {
    {"LoRA", "lora qlora peft adapter adapters"},
    {"preference tuning", "preference preferences dpo rlhf ppo grpo kto orpo reward"},
    {"training on chats", "chat chats chat_template messages"},
    {"fp8", "fp8 float8 precision=fp8 precision=float8 precision=fp8_e4m3"},
    {"quantized training", "quantization quantize precision=int8 precision=fp4 precision=nvfp4"},
    {"a loss besides cross-entropy", "loss.type"},
};

std::vector<std::string_view> split(std::string_view s) {
  std::vector<std::string_view> words;
  while (!s.empty()) {
    const auto end = std::min(s.find(' '), s.size());
    words.push_back(s.substr(0, end));
    s.remove_prefix(std::min(end + 1, s.size()));
  }
  return words;
}

}  // namespace

const FieldReader::Hints& hints() {
  static const FieldReader::Hints hints = [] {
    FieldReader::Hints all;
    for (const AliasRow& row : kAliases)
      for (std::string_view word : split(row.words)) all.keys.emplace(word, split(row.keys));
    for (const ValueRow& row : kValues)
      for (std::string_view word : split(row.words))
        all.values.emplace(std::string(row.key) + "=" + std::string(word), row.value);
    for (const MissingRow& row : kMissing)
      for (std::string_view word : split(row.words)) all.missing.emplace(word, row.feature);
    return all;
  }();
  return hints;
}

}  // namespace tfm::config
